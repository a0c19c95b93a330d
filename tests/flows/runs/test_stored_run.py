"""A run as the bucket holds it: what is immutable is read once, what is create-only is written once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import cast

import msgspec
import pytest

from tests.flows.runs.evidence.memory_bucket import START, MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, write_run, write_status
from tests.running_simulator import RunningSimulator
from tpuctl import clock, runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConflictError, NotFoundError, UsageError
from tpuctl.flows.runs.lookup import find_run, stored_runs
from tpuctl.flows.runs.stored_attempt import age_of
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, RUNNING, UNKNOWN, WorkerStatus, encode, status_type
from tpuctl.runs import BY_MACHINE, BY_SILENCE, BY_WORKERS, Attempt, Verdict


def reads(simulator: RunningSimulator, name: str) -> int:
    """How often an object was downloaded."""
    requests = simulator.events.find(kind="request", service="storage", resource=f"*/{name}")
    return len([request for request in requests if request.what.endswith("objects.get")])


HOUR = timedelta(hours=1)


def verdict(outcome: str, basis: str | None = None, silent: tuple[int, ...] = ()) -> Verdict:
    return Verdict("r1", outcome, 1, CREATED, "because", basis=basis, silent=silent)


def test_immutable_records_are_read_once(bucket: Bucket, simulator: RunningSimulator) -> None:
    write_run(bucket)
    names, run = ("run.json", "1/attempt.json"), StoredRun(bucket, "r1")
    before = [reads(simulator, name) for name in names]
    for _ in range(3):
        assert run.record.run == "r1"
        assert run.last_attempt().record == ATTEMPT
    assert [reads(simulator, name) - count for name, count in zip(names, before, strict=True)] == [1, 1]


def test_a_verdict_is_looked_for_until_there_is_one(bucket: Bucket, simulator: RunningSimulator) -> None:
    run = write_run(bucket)
    assert run.verdict() is None
    StoredRun(bucket, "r1").end(verdict(runs.FAILED))
    before = reads(simulator, "verdict.json")
    assert run.verdict() == run.verdict() == verdict(runs.FAILED)
    assert reads(simulator, "verdict.json") == before + 1


def test_of_two_verdicts_the_first_stands_and_both_machines_return_it(bucket: Bucket) -> None:
    first, second = write_run(bucket), StoredRun(bucket, "r1")
    assert first.end(verdict(runs.PREEMPTED)).outcome == runs.PREEMPTED
    assert second.end(verdict(runs.LOST)).outcome == runs.PREEMPTED


@pytest.mark.parametrize(
    ("before", "after", "stands"),
    [
        (verdict(runs.LOST, BY_SILENCE), verdict(runs.STOPPED, BY_MACHINE), runs.STOPPED),
        (verdict(runs.STOPPED, BY_MACHINE), verdict(runs.SUCCEEDED, BY_WORKERS), runs.SUCCEEDED),
        (verdict(runs.LOST), verdict(runs.SUCCEEDED, BY_WORKERS), runs.SUCCEEDED),  # of an earlier version
        (verdict(runs.STOPPED, BY_MACHINE), verdict(runs.PREEMPTED, BY_MACHINE), runs.STOPPED),
        (verdict(runs.STOPPED, BY_MACHINE), verdict(runs.LOST, BY_SILENCE), runs.STOPPED),
        (verdict(runs.FAILED, BY_WORKERS), verdict(runs.SUCCEEDED, BY_WORKERS), runs.FAILED),
        (verdict(runs.FAILED), verdict(runs.SUCCEEDED, BY_WORKERS), runs.FAILED),
    ],
)
def test_only_better_evidence_overrules_a_verdict(
    bucket: Bucket, before: Verdict, after: Verdict, stands: str
) -> None:
    write_run(bucket).end(before)
    assert StoredRun(bucket, "r1").end(after).outcome == stands
    stored = StoredRun(bucket, "r1").verdict()
    assert stored
    assert stored.outcome == stands


def test_a_worker_that_writes_again_refutes_that_it_was_silent(bucket: Bucket) -> None:
    run = write_run(bucket)
    attempt = run.last_attempt()
    write_status(attempt, 1, RUNNING)
    lost = run.end(verdict(runs.LOST, BY_SILENCE, silent=(1,)))
    old = [replace(word, age=word.age + 60) for word in attempt.words()]
    assert not run.is_refuted(lost, attempt, old)
    bucket.now = lambda: clock.parse(bucket.objects(run.paths.verdict)[0].updated) + HOUR  # type: ignore[method-assign]
    assert not run.is_refuted(lost, attempt, attempt.words())
    fresh = [replace(word, age=10.0) for word in attempt.words()]
    assert run.is_refuted(lost, attempt, fresh)
    assert run.end(verdict(runs.LOST, BY_SILENCE), is_refuted=lambda _: True).silent == ()


@pytest.mark.parametrize(
    ("stored", "hours", "closed"),
    [
        (verdict(runs.SUCCEEDED, BY_WORKERS), 0, True), (verdict(runs.PREEMPTED, BY_MACHINE), 1, False),
        (verdict(runs.PREEMPTED, BY_MACHINE), 3, True), (verdict(runs.LOST, BY_SILENCE), 1000, False),
        (verdict(runs.LOST), 1000, False), (verdict(runs.PREEMPTED), 0, True),
    ],
)  # fmt: skip
def test_a_verdict_is_open_while_better_evidence_can_come(
    bucket: Bucket, stored: Verdict, hours: int, closed: bool
) -> None:
    write_run(bucket).end(stored)
    bucket.now = lambda: clock.parse(bucket.objects("runs/r1/verdict.json")[0].updated) + hours * HOUR  # type: ignore[method-assign]
    run = StoredRun(bucket, "r1")
    assert run.verdict() == stored
    assert run.is_closed == closed


def test_statuses_are_in_the_order_of_the_workers(bucket: Bucket) -> None:
    attempt = write_run(bucket).last_attempt()
    write_status(attempt, 2, RUNNING)
    write_status(attempt, 0, FINISHED)
    assert [status and status.state for status in attempt.statuses()] == [FINISHED, None, RUNNING, None]


def test_a_status_that_has_not_changed_is_not_read_again(bucket: Bucket, simulator: RunningSimulator) -> None:
    attempt = write_run(bucket).last_attempt()
    write_status(attempt, 0, FINISHED)
    for _ in range(3):
        write_status(attempt, 1, RUNNING)
        assert [status and status.state for status in attempt.statuses()][:2] == [FINISHED, RUNNING]
        attempt.statuses()
    assert reads(simulator, "workers/0/status.json") == 1
    assert reads(simulator, "workers/1/status.json") == 3


def test_the_age_of_a_status_is_by_the_buckets_clock(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the host's clock, which wrote the heartbeat, nor that of this machine counts."""
    attempt = write_run(bucket).last_attempt()
    write_status(attempt, 0, RUNNING)  # its heartbeat says January
    monkeypatch.setattr(clock, "now", lambda: pytest.fail("the clock of a laptop was asked"))
    words = attempt.words()
    assert [word.age < 60 for word in words] == [True] * 4
    bucket.now = lambda: clock.parse(bucket.objects(attempt.run.paths.status(1, 0))[0].updated) + HOUR  # type: ignore[method-assign]
    assert attempt.words()[0].age == 3600.0


def test_attempts_are_ordered_by_number(bucket: Bucket) -> None:
    run = write_run(bucket)
    for number in (10, 2):
        run.create_attempt(Attempt(number, CREATED, ATTEMPT.tpu, (0,)))
    assert run.attempt_numbers() == [1, 2, 10]
    assert run.last_attempt().record.attempt == 10


def test_the_newest_attempt_is_listed_once_and_then_followed(
    bucket: Bucket, simulator: RunningSimulator
) -> None:
    run = write_run(bucket)
    before = len(simulator.events.find(what="objects.list"))
    assert run.last_attempt().number == 1
    for number in (2, 3):
        run.create_attempt(Attempt(number, CREATED, ATTEMPT.tpu, (0,)))
    assert run.last_attempt().number == 3
    assert len(simulator.events.find(what="objects.list")) == before + 1


def test_an_attempt_has_one_author(bucket: Bucket) -> None:
    run = write_run(bucket)
    with pytest.raises(ConflictError):
        run.create_attempt(Attempt(1, CREATED, ATTEMPT.tpu, (0,)))


def test_nothing_is_left_of_an_attempt_that_every_host_refused(bucket: Bucket) -> None:
    run = write_run(bucket)
    bucket.create(run.paths.launch(1), b"{}")  # it took long
    run.withdraw(ATTEMPT)
    assert list(bucket.objects("")) == []


def test_a_name_is_taken_once(bucket: Bucket) -> None:
    run = write_run(bucket)
    other = msgspec.structs.replace(run.record, submitter="bob@laptop")
    with pytest.raises(ConflictError, match="There is a run 'r1' already"):
        StoredRun(bucket, "r1").create(other)


def test_a_run_that_does_not_exist_is_named(bucket: Bucket) -> None:
    for read in (lambda run: run.last_attempt(), lambda run: run.record):
        with pytest.raises(NotFoundError, match="There is no run 'r9'"):
            read(find_run(bucket, "r9"))


def test_without_a_name_the_newest_run_is_found(bucket: Bucket) -> None:
    with pytest.raises(NotFoundError, match="There is no run yet"):
        find_run(bucket, None)
    for name in ("b", "a"):
        write_run(bucket, name)
    assert [run.name for run in stored_runs(bucket)] == ["b", "a"]
    assert find_run(bucket, None, submitter="ada@laptop").name == "a"


def test_a_record_without_an_attempt_is_not_taken_for_ones_last_run(bucket: Bucket) -> None:
    """One PUT of somebody else would otherwise end every `logs` and `pull` without a name."""
    write_run(bucket, "mine")
    StoredRun(bucket, "forged").create(
        msgspec.structs.replace(StoredRun(bucket, "mine").record, run="forged")
    )
    warnings = list[str]()
    assert find_run(bucket, None, warnings.append, submitter="ada@laptop").name == "mine"
    assert warnings == ["runs/forged/ has no attempt, so it is not taken for your last run."]


def test_without_a_name_the_run_of_another_is_not_taken(bucket: Bucket) -> None:
    write_run(bucket, "theirs")
    with pytest.raises(NotFoundError, match=r"None of the last 1 runs is of me@here\.") as missing:
        find_run(bucket, None, submitter="me@here")
    assert missing.value.hint == "Name the run: the newest is 'theirs' of ada@laptop."


def test_a_record_that_nobody_could_read_is_not_written(bucket: Bucket) -> None:
    record = write_run(bucket).record
    long = msgspec.structs.replace(record, run="r2", arguments=("x",) * 10_001)
    with pytest.raises(UsageError, match="This run cannot be recorded"):
        StoredRun(bucket, "r2").create(long)
    assert bucket.find("runs/r2/run.json") is None


def test_evidence_that_is_too_long_is_cut(bucket: Bucket) -> None:
    run = write_run(bucket)
    run.end(msgspec.structs.replace(verdict(runs.FAILED), evidence="x" * 10_000))
    assert StoredRun(bucket, "r1").verdict() is not None


class CountingBucket(MemoryBucket):
    """A bucket in memory that knows which objects were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def find(self, name: str, most: int = 0) -> bytes | None:
        self.reads.append(name)
        return super().find(name, most)


class TestInMemory:
    @pytest.fixture
    def memory(self) -> CountingBucket:
        """A bucket with the run r1, of four workers."""
        memory = CountingBucket()
        write_run(cast("Bucket", memory))
        return memory

    def run(self, memory: MemoryBucket, warnings: list[str] | None = None) -> StoredRun:
        """Return the run as another machine finds it."""
        return StoredRun(cast("Bucket", memory), "r1", (warnings if warnings is not None else []).append)

    def say(self, memory: MemoryBucket, status: WorkerStatus, content_type: str | None = None) -> None:
        content_type = status_type(status) if content_type is None else content_type
        memory.put(self.run(memory).paths.status(1, status.worker), encode(status), content_type)

    def test_the_verdict_of_an_attempt_that_another_follows_is_not_that_of_the_run(
        self, memory: CountingBucket
    ) -> None:
        run = self.run(memory)
        preempted = msgspec.structs.replace(verdict(runs.PREEMPTED, BY_MACHINE), restarts=True)
        run.end(preempted)
        assert self.run(memory).verdict() == preempted
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2))
        assert self.run(memory).verdict() is None

    def test_a_status_that_only_says_that_it_goes_on_is_not_read_again(self, memory: CountingBucket) -> None:
        attempt = self.run(memory).last_attempt()
        self.say(memory, replace(STATUS, log_chunks=1))
        assert attempt.started == ""
        assert attempt.words()[0].status == replace(STATUS, log_chunks=1)
        assert attempt.started == clock.iso(START)
        memory.reads.clear()
        assert attempt.words()[0].status == replace(STATUS, log_chunks=1)
        memory.pass_time(5)
        later = clock.iso(START + timedelta(seconds=5))
        self.say(memory, replace(STATUS, log_chunks=2, heartbeat=later))
        assert attempt.words()[0].status == replace(STATUS, log_chunks=2, heartbeat=later)
        assert memory.reads == []

    def test_the_time_without_output_goes_on_without_reading_until_the_log_grows(
        self, memory: CountingBucket
    ) -> None:
        attempt = self.run(memory).last_attempt()
        status = replace(STATUS, log_chunks=1, quiet=600)
        said = []
        for changes in ({}, {"heartbeat": CREATED}, {"log_chunks": 2}):
            status = replace(status, **changes)  # type: ignore[arg-type]
            self.say(memory, status)
            memory.pass_time(5)
            said.append(attempt.words()[0].quiet)
        assert said == [605, 610, 5]
        assert memory.reads == [attempt.run.paths.attempt(1), attempt.run.paths.status(1, 0)]
        for other in (replace(status, state=FINISHED), replace(status, quiet=None)):
            self.say(memory, replace(other, tail="other"))
            assert attempt.words()[0].quiet is None

    @pytest.mark.parametrize("content_types", [("", None), (None, ""), ("", "")])
    def test_a_status_without_such_a_label_is_read_again(
        self, memory: CountingBucket, content_types: tuple[str | None, str | None]
    ) -> None:
        attempt = self.run(memory).last_attempt()
        for count, content_type in enumerate(content_types):
            self.say(memory, replace(STATUS, tail=f"line {count}"), content_type)
            words = attempt.words()
            assert words[0].status == replace(STATUS, tail=f"line {count}")

    def test_a_status_that_says_something_else_is_read_again(self, memory: CountingBucket) -> None:
        attempt = self.run(memory).last_attempt()
        for state in (RUNNING, FINISHED):
            self.say(memory, replace(STATUS, state=state))
            assert attempt.statuses() == [replace(STATUS, state=state), None, None, None]

    def test_a_status_that_cannot_be_read_is_named_and_hides_no_other(self, memory: CountingBucket) -> None:
        warnings: list[str] = []
        attempt = self.run(memory, warnings).last_attempt()
        self.say(memory, replace(STATUS, worker=1))
        memory.put(attempt.run.paths.status(1, 0), b"{")
        assert [status and status.state for status in attempt.statuses()] == [UNKNOWN, RUNNING, None, None]
        assert [line.partition(" ")[0] for line in warnings] == [attempt.run.paths.status(1, 0)]

    def test_pieces_of_logs_have_worker_and_number_and_others_are_named(self, memory: CountingBucket) -> None:
        warnings: list[str] = []
        attempt = self.run(memory, warnings).last_attempt()
        folder = attempt.run.paths.ordered_logs(1)
        memory.put(f"{folder}20260101T120000-0003-000012.log", b"a")
        memory.put(f"{folder}20260101T120001-0000-000001.log", b"b")
        memory.put(f"{folder}20260101T120002-0000-000000.log", b"c")
        assert [(chunk.worker, chunk.number) for chunk in attempt.ordered_chunks()] == [(3, 12), (0, 1)]
        assert warnings == [f"{folder}20260101T120002-0000-000000.log is no chunk of a log."]
        assert [chunk.number for chunk in attempt.ordered_chunks("20260101T120001")] == [1]

    def test_pieces_of_a_workers_own_log_come_after_a_number_and_others_are_named(
        self, memory: CountingBucket
    ) -> None:
        warnings: list[str] = []
        attempt = self.run(memory, warnings).last_attempt()
        for number in (1, 2, 3):
            memory.put(attempt.run.paths.log(1, 0, number), b"a")
        memory.put(f"{attempt.run.paths.logs(1, 0)}x.log", b"b")
        assert [chunk.number for chunk in attempt.chunks_of([0])] == [1, 2, 3]
        assert [item.name for item in attempt.log_chunks(0, 2)] == [attempt.run.paths.log(1, 0, 3)]
        assert warnings == [f"{attempt.run.paths.logs(1, 0)}x.log is no chunk of a log."] * 2

    @pytest.mark.parametrize(("seconds", "age"), [(0.5, 0.5), (0, 0.0), (-1, 0.0), (90, 90.0)])
    def test_the_age_of_an_object_is_never_less_than_none(
        self, memory: CountingBucket, seconds: float, age: float
    ) -> None:
        item = memory.stat("runs/r1/run.json")
        assert age_of(item, START + timedelta(seconds=seconds)) == age
        assert age_of(None, START) == 0.0

    @pytest.mark.parametrize(
        ("worker", "state", "is_refuted"),
        [(0, RUNNING, True), (1, RUNNING, False), (0, None, False), (0, "", False)],
    )
    def test_only_a_worker_that_was_called_silent_and_writes_again_refutes_a_verdict(
        self, memory: CountingBucket, worker: int, state: str | None, is_refuted: bool
    ) -> None:
        run = self.run(memory)
        lost = verdict(runs.LOST, BY_SILENCE, silent=(0,))
        run.end(lost)
        memory.pass_time(600)
        if state:
            self.say(memory, replace(STATUS, worker=worker, state=state))
        elif state is not None:
            memory.put(run.paths.status(1, worker), b"{")
        attempt = run.last_attempt()
        assert run.is_refuted(lost, attempt, attempt.words()) is is_refuted

    @pytest.mark.parametrize(("seconds", "is_refuted"), [(5, False), (6, True)])
    def test_words_within_five_seconds_of_a_verdict_do_not_refute_it(
        self, memory: CountingBucket, seconds: float, is_refuted: bool
    ) -> None:
        run = self.run(memory)
        lost = verdict(runs.LOST, BY_SILENCE, silent=(0,))
        run.end(lost)
        memory.pass_time(seconds)
        self.say(memory, replace(STATUS, worker=0, state=RUNNING))
        attempt = run.last_attempt()
        assert run.is_refuted(lost, attempt, attempt.words()) is is_refuted

    @pytest.mark.parametrize(("seconds", "is_closed"), [(7200, False), (7201, True)])
    def test_what_a_machine_says_is_final_after_two_hours(
        self, memory: CountingBucket, seconds: float, is_closed: bool
    ) -> None:
        self.run(memory).end(verdict(runs.LOST, BY_MACHINE))
        memory.pass_time(seconds)
        run = self.run(memory)
        run.verdict()
        assert run.is_closed is is_closed

    @pytest.mark.parametrize(("unreadable", "number"), [(0, 7), (4, 3), (5, None)])
    def test_of_the_newest_five_attempts_one_has_to_be_readable(
        self, memory: CountingBucket, unreadable: int, number: int | None
    ) -> None:
        warnings: list[str] = []
        run = self.run(memory, warnings)
        for attempt in range(2, 8):
            run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=attempt))
        for attempt in range(7, 7 - unreadable, -1):
            memory.put(run.paths.attempt(attempt), b"{")
        if number:
            assert run.last_readable_attempt().number == number
        else:
            with pytest.raises(BadObjectError, match=r"runs/r1/attempts/7/attempt\.json"):
                run.last_readable_attempt()
        assert [line.split()[0] for line in warnings] == [
            f"runs/r1/attempts/{attempt}/attempt.json" for attempt in range(7, 7 - unreadable, -1)
        ]

    def test_a_verdict_that_keeps_changing_is_an_error(self, memory: CountingBucket) -> None:
        run, tries = self.run(memory), list[str]()

        def fail(name: str, *_: object) -> None:
            tries.append(name)
            raise ConflictError(f"{name} exists already.")

        memory.create = fail  # type: ignore[method-assign]
        with pytest.raises(ConflictError) as changing:
            run.end(verdict(runs.LOST, BY_MACHINE))
        assert changing.value.message == "The verdict of run 'r1' keeps changing."
        assert (changing.value.hint, len(tries)) == ("Try again.", 5)

    def test_no_number_of_an_attempt_is_asked_for_that_has_no_record(self, memory: CountingBucket) -> None:
        """Whoever may create objects may begin with the last number that there is."""
        run = self.run(memory)
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=9998))
        run.keep_verdict(Verdict("r1", "lost", 9998, CREATED, "x"))
        memory.reads.clear()
        assert [verdict.attempt for verdict in run.earlier_verdicts(9999)] == [9998]
        assert len(memory.reads) == 2
        assert list(run.attempts_before(5)) == [1, 2, 3, 4], "few are asked for without a listing"

    def test_folders_that_are_no_attempts_are_named(self, memory: CountingBucket) -> None:
        warnings: list[str] = []
        for folder in ("0", "01", "x"):
            memory.put(f"runs/r1/attempts/{folder}/attempt.json", b"{}")
        assert self.run(memory, warnings).attempt_numbers() == [1]
        assert [line.split()[0] for line in warnings] == [
            f"runs/r1/attempts/{folder}/" for folder in ("0", "01", "x")
        ]
        assert warnings[0].endswith("does not have the number of an attempt.")

    def test_errors_of_a_run_that_is_not_there_say_what_to_do(self, memory: CountingBucket) -> None:
        bucket = cast("Bucket", memory)
        missing = StoredRun(bucket, "r2").not_found()
        assert (missing.message, missing.hint, missing.facts) == (
            "There is no run 'r2'.", "'tpuctl runs' lists them.", {"run": "r2"},
        )  # fmt: skip
        with pytest.raises(NotFoundError, match=r"^There is no run 'r2'\.$"):
            StoredRun(bucket, "r2").last_attempt()
        StoredRun(bucket, "r2").create(msgspec.structs.replace(self.run(memory).record, run="r2"))
        with pytest.raises(NotFoundError) as unstarted:
            StoredRun(bucket, "r2").last_attempt()
        assert unstarted.value.message == "Run 'r2' was not started: nothing of it runs."
        assert unstarted.value.hint == (
            "The same command with --name r2 starts it; 'tpuctl cancel r2' ends it."
        )
        with pytest.raises(ConflictError) as taken:
            StoredRun(bucket, "r2").create(
                msgspec.structs.replace(self.run(memory).record, run="r2", token="x")
            )
        assert taken.value.message == "There is a run 'r2' already: its record exists."
        assert taken.value.hint == "Choose another --name."


def test_the_word_of_another_run_of_the_name_is_none_of_this_one(bucket: Bucket) -> None:
    """A run whose record was deleted may still work when its name is used again."""
    run = StoredRun(bucket, "r1")
    write_run(bucket)
    attempt = run.attempt(1)
    attempt.record = msgspec.structs.replace(ATTEMPT, token="new")
    name = run.paths.status(1, 0)
    for token, is_counted in (("old", False), ("new", True), ("", True), ("old", False)):
        status = replace(STATUS, token=token, state=FINISHED)
        bucket.upload(name, [encode(status)], status_type(status))
        counted = [word.status.token for word in attempt.words() if word.status]
        assert counted == [token] * is_counted, token
