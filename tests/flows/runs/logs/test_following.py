"""Following many workers: a listing a look, nothing lost in outages, the end seen at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.logs.memory_logs import MemoryLogs
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, write_run
from tests.running_simulator import RunningSimulator
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.errors import BucketMissingError, DeadlineError, InterruptedByUser, NotFoundError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.logs.following import SETTLE_EVERY, follow
from tpuctl.flows.runs.logs.reader import Line, LogReader
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, RUNNING, encode, ordered_log_file, status_type
from tpuctl.nodes import Node, NodeId
from tpuctl.runs import ORDERED_LOGS, Run, Verdict
from tpuctl.upkeep import REMOVAL_TYPE, Removal, encode_removal

NOBODY = Witnesses(MemoryProvider())
MANY = tuple(range(64))


class Workers:
    """Workers of one attempt that write as the program on their hosts does."""

    def __init__(self, attempt: StoredAttempt) -> None:
        self.attempt = attempt
        self.bucket = attempt.run.bucket
        self.chunks = dict.fromkeys(attempt.record.workers, 0)

    def beat(self, *workers: int, state: str = RUNNING, exit_code: int | None = None, **more: int) -> None:
        """Write statuses."""
        for worker in workers or self.attempt.record.workers:
            status = replace(
                STATUS, worker=worker, state=state, exit_code=exit_code, log_chunks=self.chunks[worker],
                **more,
            )  # fmt: skip
            name = self.attempt.run.paths.status(1, worker)
            self.bucket.upload(name, [encode(status)], status_type(status))

    def print(self, worker: int, text: str, seconds: float = 0) -> None:
        """Ship the next piece of a log, under the time of so many seconds ago."""
        self.chunks[worker] += 1
        moment = (self.bucket.now() - timedelta(seconds=seconds)).strftime("%Y%m%dT%H%M%S")
        name = ordered_log_file(moment, worker, self.chunks[worker])
        self.bucket.create(f"runs/r2/attempts/1/{name}", text.encode(), "text/plain")

    def end(self) -> None:
        """Write the last statuses."""
        self.beat(state=FINISHED, exit_code=0)


def started(bucket: Bucket, workers: tuple[int, ...]) -> Workers:
    run = StoredRun(bucket, "r2")
    run.create(msgspec.structs.replace(write_run(bucket).record, run="r2"))
    run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=workers, log_layout=ORDERED_LOGS))
    writers = Workers(StoredRun(bucket, "r2").last_attempt())
    writers.beat()
    return writers


@pytest.fixture
def four(bucket: Bucket) -> Workers:
    return started(bucket, (0, 1, 2, 3))


def followed(
    workers: Workers, events: list[Callable[[], object]], warnings: list[str] | None = None
) -> tuple[list[str], str, list[float]]:
    """Follow a run in whose pauses these things happen; return its lines, its outcome, the pauses."""
    run, lines, pauses = StoredRun(workers.bucket, "r2"), list[Line](), list[float]()
    run.warn = (warnings if warnings is not None else []).append

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        events.pop(0)()

    verdict = follow(run, NOBODY, LogReader(run.last_attempt()), lines.append, sleep=sleep)
    return [line.text for line in lines], verdict.outcome, pauses


def storage_requests(simulator: RunningSimulator) -> int:
    return len(simulator.events.find(kind="request", service="storage"))


def test_a_look_at_64_workers_is_one_listing(bucket: Bucket, simulator: RunningSimulator) -> None:
    workers, counts = started(bucket, MANY), list[int]()

    def beat() -> None:
        counts.append(storage_requests(simulator))
        workers.beat()
        counts.append(storage_requests(simulator))

    followed(workers, [beat, beat, beat, workers.end])
    looks = [after - before for before, after in zip(counts[1::2], counts[2::2], strict=False)]
    assert looks == [1, 1], "each worker has written, and none has said anything new"


def test_a_run_that_prints_nothing_says_so_after_ten_minutes_and_each_twice_as_long(four: Workers) -> None:
    said: list[str] = []
    four.beat(quiet=660)
    quiet = [
        lambda seconds=seconds, pid=pid: four.beat(quiet=seconds, pid=pid)
        for pid, seconds in enumerate((1100, 2500, 2600, 5, 605), start=1)
    ]
    followed(four, [*quiet, four.end], said)
    assert said == [f"Run 'r2': no output for {minutes} min. Still following." for minutes in (11, 41, 10)]


def test_a_run_that_holds_no_chip_says_so_once(four: Workers) -> None:
    said: list[str] = []
    beats = [
        lambda none=none, pid=pid: four.beat(has_no_chip=none, pid=pid)
        for pid, none in enumerate((True, True, False, False, True), start=1)
    ]
    followed(four, [*beats, four.end], said)
    none = "Run 'r2': holds no TPU chip: running on the CPU? Still following."
    assert said == [none, "Run 'r2' may use TPU chips by now.", none]


def test_a_look_of_new_lines_reads_them_and_lists_once(four: Workers, simulator: RunningSimulator) -> None:
    counts = list[int]()

    def print_lines() -> None:
        for worker in range(4):
            four.print(worker, f"I am {worker}\n")
        counts.append(storage_requests(simulator))

    def note() -> None:
        counts.append(storage_requests(simulator))

    lines, outcome, _ = followed(four, [print_lines, note, four.end])
    assert lines == [f"I am {worker}" for worker in range(4)]
    assert outcome == runs.SUCCEEDED
    assert counts[1] - counts[0] == 1 + 4


def test_a_chunk_that_comes_late_is_looked_for_once_its_worker_tells_of_it(four: Workers) -> None:
    def late() -> None:
        four.print(0, "late\n", seconds=900)
        four.beat(0)

    seen_after = list[int]()
    run = StoredRun(four.bucket, "r2")
    reader = LogReader(run.last_attempt())
    four.print(0, "first\n")
    for step in (lambda: None, late, lambda: None):
        step()
        reader.look()
        seen_after.append(len(list(reader.lines())))
    assert seen_after == [1, 1, 0]


def test_no_line_is_lost_or_doubled_when_the_bucket_fails_between_listing_and_reading(
    four: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Bucket.read_range

    def fail(own: Bucket, item: Object, start: int, end: int) -> bytes:
        if "-0002-" in item.name:
            raise DeadlineError("gs://b does not answer.")
        return real(own, item, start, end)

    def print_lines() -> None:
        monkeypatch.setattr(Bucket, "read_range", fail)
        for worker in range(4):
            four.print(worker, f"I am {worker}\nha")
        for worker in range(4):
            four.print(worker, "lf\n")

    warnings = list[str]()
    repair = [lambda: None] * 3 + [lambda: monkeypatch.setattr(Bucket, "read_range", real)]
    lines, outcome, pauses = followed(four, [print_lines, *repair, four.end], warnings)
    assert sorted(lines) == sorted([*(f"I am {worker}" for worker in range(4)), *["half"] * 4])
    assert outcome == runs.SUCCEEDED
    assert pauses == [1.0, 1.0, 2.0, 4.0, 8.0, 1.0], "an outage is waited for, more and more patiently"
    assert warnings == ["gs://b does not answer. Still following.", "The bucket answers again."]


def test_the_end_that_all_workers_tell_is_seen_at_once(four: Workers, simulator: RunningSimulator) -> None:
    def end() -> None:
        four.print(3, "the end")
        four.end()

    lines, outcome, pauses = followed(four, [lambda: None, lambda: None, end])
    assert (lines, outcome, len(pauses)) == (["the end"], runs.SUCCEEDED, 3)


def test_a_verdict_of_somebody_else_ends_it_within_some_looks(four: Workers) -> None:
    def write() -> None:
        run = StoredRun(four.bucket, "r2")
        run.end(runs.Verdict("r2", runs.STOPPED, 1, CREATED, "so", basis=runs.BY_WORKERS))

    lines, outcome, _ = followed(four, [write, *[lambda: None] * SETTLE_EVERY])
    assert (lines, outcome) == ([], runs.STOPPED)


def test_the_next_attempt_is_followed_from_its_beginning(four: Workers) -> None:
    """Another watcher has started the run again: what its first attempt prints is over."""
    warnings = list[str]()
    four.print(0, "attempt 1\n")

    def start_again() -> None:
        four.print(1, "last of attempt 1\n")
        record = msgspec.structs.replace(four.attempt.record, attempt=2, workers=(0, 1))
        StoredRun(four.bucket, "r2").create_attempt(record)
        paths = four.attempt.run.paths
        for worker in record.workers:
            status = replace(STATUS, worker=worker, attempt=2, state=RUNNING, log_chunks=1)
            four.bucket.upload(paths.status(2, worker), [encode(status)], status_type(status))
            moment = four.bucket.now().strftime("%Y%m%dT%H%M%S")
            name = f"runs/r2/attempts/2/{ordered_log_file(moment, worker, 1)}"
            four.bucket.create(name, f"attempt 2 of {worker}\n".encode(), "text/plain")

    def end() -> None:
        for worker in (0, 1):
            status = replace(STATUS, worker=worker, attempt=2, state=FINISHED, exit_code=0, log_chunks=1)
            four.bucket.upload(
                four.attempt.run.paths.status(2, worker), [encode(status)], status_type(status)
            )

    looks: list[Callable[[], object]] = [lambda: None] * SETTLE_EVERY
    lines, outcome, _ = followed(four, [start_again, *looks, end, *looks], warnings)
    assert lines == ["attempt 1", "last of attempt 1", "attempt 2 of 0", "attempt 2 of 1"]
    assert outcome == runs.SUCCEEDED
    assert warnings == ["Run 'r2' was started again: attempt 2."]


class Quiet:
    """A run of two workers in a bucket with a clock of its own, whose node is READY."""

    def __init__(self) -> None:
        self.logs = MemoryLogs(workers=(0, 1))
        record = Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
        self.logs.bucket.put(self.logs.run.paths.record, runs.encode(record))
        tpu = ATTEMPT.tpu
        self.provider = MemoryProvider(node(tpu.name, id=NodeId("memory", "p", tpu.zone, tpu.name, tpu.uid)))
        self.warnings: list[str] = []
        self.pauses: list[float] = []
        self.lines: list[Line] = []
        self.logs.tell(0)
        self.logs.tell(1)

    def follow(self, *events: Callable[[], object], tail: int | None = None, **shows: Any) -> Verdict:
        """Follow the run in whose pauses these things happen."""
        run, happen = StoredRun(self.logs.run.bucket, "r1", self.warnings.append), iter(events)
        assert run.record, "`tpuctl logs` reads it first"

        def sleep(seconds: float) -> None:
            self.pauses.append(seconds)
            next(happen)()

        reader = LogReader(run.last_attempt())
        return follow(run, Witnesses(self.provider), reader, self.lines.append, tail, sleep, **shows)

    def texts(self) -> list[str]:
        return [line.text for line in self.lines]

    def pass_time(self) -> None:
        self.logs.bucket.pass_time(61)

    def beat(self) -> None:
        for worker in (0, 1):
            self.logs.tell(worker)

    def end(self) -> None:
        """Write a verdict of every worker."""
        self.logs.run.end(runs.Verdict("r1", runs.STOPPED, 1, CREATED, "so", basis=runs.BY_WORKERS))


class TestDoubt:
    def test_is_said_once_and_taken_back(self) -> None:
        quiet = Quiet()
        quiet.follow(quiet.pass_time, lambda: None, quiet.beat, lambda: None, quiet.end, *[nothing] * 10)
        assert quiet.warnings == [
            "Worker 0 has been silent for 61 s. Still following.",
            "Every worker is heard of again.",
        ]
        assert set(quiet.pauses) == {1.0}

    def test_of_a_provider_that_does_not_answer_is_its_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        quiet = Quiet()

        def fail(node: NodeId) -> Node:
            raise DeadlineError("The API does not answer.")

        monkeypatch.setattr(quiet.provider, "get_node", fail)
        quiet.follow(quiet.pass_time, quiet.end)
        assert quiet.warnings == [
            "What the TPU is doing is unknown: The API does not answer. Still following."
        ]

    def test_is_looked_after_at_each_look(self) -> None:
        """A verdict is otherwise read at every tenth look only."""
        quiet = Quiet()
        assert quiet.follow(quiet.pass_time, quiet.end).outcome == runs.STOPPED
        assert len(quiet.pauses) == 2


def test_an_outage_is_waited_for_at_most_half_a_minute_at_a_time() -> None:
    quiet = Quiet()

    def fail() -> None:
        raise DeadlineError("No answer.")

    def begin() -> None:
        quiet.logs.bucket.meanwhile = fail

    def end() -> None:
        quiet.logs.bucket.meanwhile = nothing
        quiet.end()

    quiet.follow(begin, *[nothing] * 7, end)
    assert quiet.pauses == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert quiet.warnings == ["No answer. Still following."]


def test_the_tail_is_of_what_is_there_at_the_first_look_that_is_answered() -> None:
    quiet = Quiet()
    quiet.logs.print(0, b"a\nb\nc\n")
    read, failures = quiet.logs.bucket.read_range, [DeadlineError("No answer.")]

    def fail_once(item: Object, start: int, end: int) -> bytes:
        if failures:
            raise failures.pop()
        return read(item, start, end)

    quiet.logs.bucket.read_range = fail_once  # type: ignore[method-assign]

    def print_more() -> None:
        quiet.logs.print(0, b"d\ne\nf\n")

    quiet.follow(nothing, print_more, quiet.end, *[nothing] * 10, tail=2)
    assert quiet.texts() == ["b", "c", "d", "e", "f"]


def test_lines_of_the_tail_that_were_read_before_an_outage_are_shown_after_it() -> None:
    quiet = Quiet()
    quiet.logs.print(0, b"a\nb\n")
    quiet.logs.print(1, b"c\n")
    read = quiet.logs.bucket.read_range

    def fail_on_the_second(item: Object, start: int, end: int) -> bytes:
        if "-0001-" in item.name:
            raise DeadlineError("No answer.")
        return read(item, start, end)

    quiet.logs.bucket.read_range = fail_on_the_second  # type: ignore[method-assign]

    def repair() -> None:
        quiet.logs.bucket.read_range = read  # type: ignore[method-assign]

    def print_more() -> None:
        quiet.logs.print(1, b"d\ne\nf\n")

    quiet.follow(repair, print_more, quiet.end, *[nothing] * 10, tail=2)
    assert quiet.texts() == ["b", "c", "d", "e", "f"]


def test_what_has_no_line_end_yet_is_shown_at_each_look() -> None:
    quiet, shown = Quiet(), list[list[str]]()
    quiet.logs.print(0, b"half")
    quiet.follow(
        quiet.end, *[nothing] * 10,
        show_unfinished=lambda lines: shown.append([line.text for line in lines]),
    )  # fmt: skip
    assert shown[:2] == [["half"], ["half"]]
    assert quiet.texts() == ["half"]


def test_a_verdict_that_cannot_be_read_is_an_error() -> None:
    quiet = Quiet()
    quiet.logs.bucket.put(quiet.logs.run.paths.verdict, b"{")
    with pytest.raises(BadObjectError, match=r"verdict\.json"):
        quiet.follow()
    assert quiet.warnings == []


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_run_that_was_removed_meanwhile_gets_no_verdict(is_begun: bool) -> None:
    """Its reader slept, and so did not see how it ended; its node is gone, too."""
    quiet = Quiet()
    bucket, paths = quiet.logs.bucket, quiet.logs.run.paths

    def remove() -> None:
        quiet.pass_time()
        for item in bucket.objects(paths.folder):
            bucket.remove(item)
        if is_begun:
            removal = encode_removal(Removal("r1", "ada", CREATED, (1,)))
            bucket.put(paths.record, removal, REMOVAL_TYPE)
        quiet.provider.nodes.clear()

    with pytest.raises(NotFoundError, match="is being removed" if is_begun else "There is no run 'r1'"):
        quiet.follow(remove)
    assert bucket.get(paths.verdict) is None


def test_a_run_whose_bucket_was_deleted_is_followed_until_its_node_is_gone() -> None:
    quiet = Quiet()

    def delete() -> None:
        quiet.logs.bucket.meanwhile = missing

    def missing() -> None:
        raise BucketMissingError("The bucket gs://b does not exist.")

    verdict = quiet.follow(delete, lambda: None, quiet.provider.nodes.clear)
    assert (verdict.outcome, verdict.evidence) == (runs.STOPPED, "the node was deleted")
    assert quiet.warnings == ["The bucket gs://b does not exist. Still following."]
    assert quiet.pauses == [1.0, 1.0, 2.0]


def test_a_run_whose_name_is_another_runs_by_now_gives_that_no_verdict() -> None:
    quiet = Quiet()
    bucket, paths = quiet.logs.bucket, quiet.logs.run.paths

    def submit_another() -> None:
        quiet.pass_time()
        record = StoredRun(bucket, "r1").record
        for item in bucket.objects(paths.folder):
            bucket.remove(item)
        StoredRun(bucket, "r1").create(msgspec.structs.replace(record, token="f" * 32))
        quiet.provider.nodes.clear()

    with pytest.raises(NotFoundError, match="There is no run 'r1'"):
        quiet.follow(submit_another)
    assert bucket.get(paths.verdict) is None


def test_ctrl_c_says_how_to_resume() -> None:
    quiet = Quiet()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(InterruptedByUser) as caught:
        quiet.follow(interrupt)
    assert caught.value.message == "Interrupted; run 'r1' keeps running."
    assert caught.value.hint == "Resume with: tpuctl logs -f r1"


def nothing() -> None:
    """Let nothing happen in a pause."""
