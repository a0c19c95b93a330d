"""One line about each run, and following one run to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import (
    ATTEMPT,
    CREATED,
    STATUS,
    TPU,
    pass_time,
    write_chunk,
    write_run,
    write_status,
)
from tests.running_simulator import RunningSimulator
from tpuctl import clock, runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import ConfigError, DeadlineError, InterruptedByUser, TpuctlError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.logs.following import follow
from tpuctl.flows.runs.logs.reader import Line, LogReader
from tpuctl.flows.runs.stored_run import CLOSE_AFTER, StoredRun
from tpuctl.flows.runs.summaries import Selection, take_page
from tpuctl.host.worker.records import FINISHED, PREPARING, RUNNING, encode
from tpuctl.nodes import Node, NodeId
from tpuctl.runs import Run, Tpu, Verdict

NOBODY = Witnesses(MemoryProvider())


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock may be wrong: nothing here looks at it."""
    monkeypatch.setattr(clock, "now", lambda: pytest.fail("the clock of a laptop was asked"))


def end_all(run: StoredRun, exit_code: int = 0) -> None:
    """Write the last status of every worker."""
    for worker in ATTEMPT.workers:
        status = replace(STATUS, worker=worker, state=FINISHED, finished=CREATED, exit_code=exit_code)
        run.bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")


class TestSummaries:
    def test_runs_are_listed_oldest_first_with_what_they_are(self, bucket: Bucket) -> None:
        dataset = PinnedDataset("pets", "1.0.0", "0" * 64)
        for name, made_from in (("b", dataset), ("a", None)):
            run = Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}, made_from)
            StoredRun(bucket, name).create(run)
        listed = take_page(bucket, NOBODY).runs
        assert [run.created for run in listed] == [CREATED] * 2
        infos = [run.info for run in listed]
        assert [(run.name, run.accelerator, run.dataset, run.state, run.submitter) for run in infos] == [
            ("b", "v3-32", "pets/1.0.0", "not started", "ada@laptop"),
            ("a", "v3-32", "", "not started", "ada@laptop"),
        ]
        assert [(run.node, run.ended, run.cost.amount) for run in infos] == [("", None, None)] * 2

    def test_one_that_was_recorded_long_ago_and_never_started_is_abandoned(self, bucket: Bucket) -> None:
        run = Run("a", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
        StoredRun(bucket, "a").create(run)
        pass_time(bucket, 601)
        (summary,) = take_page(bucket, NOBODY, selection=Selection(["abandoned"])).runs
        assert "the same command with --name a starts it" in summary.info.reason

    @pytest.mark.parametrize("state", [PREPARING, RUNNING])
    def test_a_run_without_a_verdict_is_as_far_as_its_workers(self, bucket: Bucket, state: str) -> None:
        attempt = write_run(bucket).last_attempt()
        assert [summary.info.state for summary in take_page(bucket, NOBODY).runs] == ["starting"]
        for worker in ATTEMPT.workers:
            write_status(attempt, worker, state)
        assert [summary.info.state for summary in take_page(bucket, NOBODY).runs] == [state]

    def test_a_run_that_has_ended_gets_its_verdict(self, bucket: Bucket) -> None:
        run = write_run(bucket)
        end_all(run)
        assert [summary.info.state for summary in take_page(bucket, NOBODY).runs] == [runs.SUCCEEDED]
        stored = StoredRun(bucket, "r1").verdict()
        assert stored
        assert stored.outcome == runs.SUCCEEDED

    def test_a_run_whose_node_is_gone_was_stopped(self, bucket: Bucket) -> None:
        write_run(bucket)
        pass_time(bucket, 31)
        assert [summary.info.state for summary in take_page(bucket, NOBODY).runs] == [runs.STOPPED]


def price(_: Tpu) -> Price:
    return Price(Decimal(360), "USD", "a list")


class TestLines:
    def test_a_line_tells_node_end_exit_code_reason_duration_and_cost(self, bucket: Bucket) -> None:
        run = write_run(bucket)
        end_all(run, exit_code=3)
        pass_time(bucket, 100)
        (line,) = take_page(bucket, NOBODY, price_of=price).runs
        info = line.info
        assert (info.node, info.zone, info.state, info.exit_code) == ("n1", TPU.zone, runs.FAILED, 3)
        assert line.info.reason == "worker 0's script ended with exit code 3"
        seconds = line.info.duration.total_seconds()
        assert seconds <= 60, "until the last word of a worker, not until somebody looked"
        assert line.info.cost.amount is not None
        assert 0 <= line.info.cost.amount * 10 <= seconds, "its attempt may have begun a second later"

    def test_one_whose_workers_all_print_nothing_says_for_how_long(self, bucket: Bucket) -> None:
        attempt = write_run(bucket).last_attempt()
        for worker, quiet in zip(ATTEMPT.workers, (None, 900, 720, 800), strict=True):
            status = replace(STATUS, worker=worker, quiet=quiet)
            bucket.upload(attempt.run.paths.status(1, worker), [encode(status)], "application/json")
        (line,) = take_page(bucket, NOBODY).runs
        assert (line.info.state, line.info.reason) == (RUNNING, "no output for 12 min")
        assert 720 <= (line.quiet or 0) < 780

    def test_a_run_that_goes_on_costs_until_now(self, bucket: Bucket) -> None:
        attempt = write_run(bucket).last_attempt()
        for worker in ATTEMPT.workers:
            write_status(attempt, worker, RUNNING)
        pass_time(bucket, 20)
        (line,) = take_page(bucket, NOBODY, price_of=price).runs
        info = line.info
        assert (info.node, info.ended, info.exit_code, info.reason) == ("n1", None, None, "")
        assert 20 <= line.info.duration.total_seconds() <= 30
        assert 2 <= (line.info.cost.amount or 0) <= 3

    def test_an_unknown_price_makes_an_unknown_cost(self, bucket: Bucket) -> None:
        end_all(write_run(bucket))
        (line,) = take_page(bucket, NOBODY, price_of=lambda _: unknown("no list")).runs
        assert line.info.cost.amount is None
        assert line.info.cost.reason == "no list"


class TestSelection:
    @pytest.fixture
    def three(self, bucket: Bucket) -> Bucket:
        """Runs a (failed), b (pets 1.0.0, succeeded), c (pets 2.0.0, starting)."""
        for name, version in (("a", ""), ("b", "1.0.0"), ("c", "2.0.0")):
            dataset = PinnedDataset("pets", version, "0" * 64) if version else None
            run = StoredRun(bucket, name)
            run.create(Run(name, CREATED, "ada", "job.py", (), "0" * 64, "jax", "v3-32", (), {}, dataset))
            run.create_attempt(ATTEMPT)
        end_all(StoredRun(bucket, "a"), exit_code=1)
        end_all(StoredRun(bucket, "b"))
        return bucket

    @pytest.mark.parametrize(
        ("selection", "names", "older"),
        [
            (Selection(), "abc", 0),
            (Selection(limit=2), "bc", 1),
            (Selection(states=("failed", "starting")), "ac", 0),
            (Selection(datasets=("pets",)), "bc", 0),
            (Selection(datasets=("pets/1.0.0",)), "b", 0),
            (Selection(datasets=("pet",)), "", 0),
            (Selection(since=3600), "abc", 0),
            (Selection(states=("lost",), limit=1), "", 0),
            (Selection(datasets=("pets",), limit=1), "c", 1),
        ],
    )
    def test_a_selection_keeps_the_order(
        self, three: Bucket, selection: Selection, names: str, older: int
    ) -> None:
        page = take_page(three, NOBODY, selection=selection)
        assert "".join(run.info.name for run in page.runs) == names
        assert page.older == older
        assert list(page.names) == ["a", "b", "c"]

    def test_since_is_by_the_buckets_clock(self, three: Bucket) -> None:
        pass_time(three, 3600)
        assert not take_page(three, NOBODY, selection=Selection(since=1800)).runs
        assert len(take_page(three, NOBODY, selection=Selection(since=7200)).runs) == 3

    def test_records_are_read_of_the_runs_that_are_shown(
        self, three: Bucket, simulator: RunningSimulator
    ) -> None:
        for number in range(40):
            write_run(three, f"r{number}")
            run = StoredRun(three, f"r{number}")
            run.end(Verdict(run.name, runs.STOPPED, 1, CREATED, "so", basis=runs.BY_WORKERS))
        before = len(simulator.events.find(kind="request", service="storage"))
        page = take_page(three, NOBODY, selection=Selection(limit=10))
        assert (len(page.runs), page.older) == (10, 33)
        after = len(simulator.events.find(kind="request", service="storage"))
        assert after - before == 1 + 2 * 10, "one listing; record and verdict of each"

    def test_of_a_state_no_run_is_read_that_is_known_to_have_ended_otherwise(
        self, three: Bucket, simulator: RunningSimulator
    ) -> None:
        for number, basis in enumerate((runs.BY_WORKERS, runs.BY_MACHINE, runs.BY_SILENCE)):
            write_run(three, f"r{number}")
            run = StoredRun(three, f"r{number}")
            outcome = runs.LOST if basis == runs.BY_SILENCE else runs.STOPPED
            run.end(Verdict(run.name, outcome, 1, CREATED, "so", basis=basis, tpu=TPU))
        take_page(three, NOBODY)

        def reads(state: str) -> set[str]:
            last = list(simulator.events)[-1].number
            page = take_page(three, NOBODY, selection=Selection(states=(state,)))
            assert page.older == 0
            after = [event for event in simulator.events if event.number > last]
            return {event.resource.split("/")[-2] for event in after if "/run.json" in event.resource}

        assert "a" in reads(runs.FAILED)
        assert not {"b", "r0"} & reads(runs.FAILED), "workers have said how they ended"
        assert "r1" in reads(runs.FAILED), "what the machine said may still be overruled"
        pass_time(three, CLOSE_AFTER + 60)
        assert "r1" not in reads(runs.FAILED)
        silent = Verdict("r3", runs.LOST, 1, CREATED, "so", basis=runs.BY_SILENCE)
        assert runs.read_verdict_type(runs.verdict_type(silent)) is None, "silence is never final"


class TestFollow:
    @pytest.fixture
    def run(self, bucket: Bucket) -> StoredRun:
        """A run that has just sent heartbeats."""
        run = write_run(bucket)
        for worker in ATTEMPT.workers:
            write_status(run.last_attempt(), worker, RUNNING)
        return run

    def follow(
        self, run: StoredRun, events: list[Callable[[], object]]
    ) -> tuple[list[str], str, list[float]]:
        """Follow a run in whose pauses these things happen; return its lines, its outcome, the pauses."""
        lines, pauses = list[Line](), list[float]()

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            events.pop(0)()

        reader = LogReader(run.last_attempt())
        verdict = follow(run, NOBODY, reader, lines.append, sleep=sleep)
        return [line.text for line in lines], verdict.outcome, pauses

    def test_new_lines_are_shown_each_second_until_the_run_ends(self, run: StoredRun) -> None:
        attempt = run.last_attempt()
        write_chunk(attempt, 0, 1, "one\n")
        lines, outcome, pauses = self.follow(
            run, [lambda: write_chunk(attempt, 0, 2, "two\nthr"), lambda: None, lambda: end_all(run)]
        )
        assert lines == ["one", "two", "thr"]
        assert outcome == runs.SUCCEEDED
        assert pauses == [1.0, 1.0, 1.0]

    def test_lines_that_were_shipped_right_before_the_end_are_shown(self, run: StoredRun) -> None:
        def last() -> None:
            write_chunk(run.last_attempt(), 1, 1, "the end")
            end_all(run, exit_code=7)

        lines, outcome, _ = self.follow(run, [last])
        assert (lines, outcome) == (["the end"], runs.FAILED)

    def test_ctrl_c_leaves_the_run_alone_and_says_how_to_resume(self, run: StoredRun) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        with pytest.raises(InterruptedByUser) as interrupted:
            self.follow(run, [interrupt])
        assert interrupted.value.message == "Interrupted; run 'r1' keeps running."
        assert interrupted.value.hint == "Resume with: tpuctl logs -f r1"
        assert StoredRun(run.bucket, "r1").verdict() is None


def test_following_a_run_whose_verdict_cannot_be_read_ends_with_its_name(bucket: Bucket) -> None:
    run = write_run(bucket)
    write_chunk(run.last_attempt(), 0, 1, "the last words")
    bucket.upload(run.paths.verdict, [b"{}"], "application/json")
    lines: list[Line] = []
    with pytest.raises(BadObjectError, match=r"runs/r1/verdict\.json is not a Verdict"):
        follow(run, NOBODY, LogReader(run.last_attempt()), lines.append)
    assert [line.text for line in lines] == ["the last words"]


class Refusing(MemoryProvider):
    """A provider that answers with an error."""

    def __init__(self, error: TpuctlError) -> None:
        super().__init__()
        self.error: TpuctlError | None = error

    def get_node(self, node: NodeId) -> Node:
        if self.error:
            raise self.error
        return super().get_node(node)


@pytest.mark.parametrize(
    "error", [ConfigError("You may not read it."), DeadlineError("No answer in 60 s.")], ids=["403", "none"]
)
def test_a_node_that_cannot_be_looked_up_makes_one_run_unknown(bucket: Bucket, error: TpuctlError) -> None:
    write_run(bucket)
    pass_time(bucket, 3600)
    write_run(bucket, "r2")
    end_all(StoredRun(bucket, "r2"))
    warnings: list[str] = []
    listed = take_page(bucket, Witnesses(Refusing(error)), warnings.append).runs
    assert [summary.info.state for summary in listed] == ["unknown", runs.SUCCEEDED]
    assert warnings == [f"The state of run 'r1' is unknown: {error.message}"]
    assert StoredRun(bucket, "r1").verdict() is None, "no answer is no evidence"


def test_one_record_that_cannot_be_read_hides_no_other_run(
    bucket: Bucket, simulator: RunningSimulator
) -> None:
    for name in ("bad", "good"):
        write_run(bucket, name)
    bucket.upload("runs/bad/run.json", [b"{"], "application/json")
    warnings: list[str] = []
    assert [summary.info.name for summary in take_page(bucket, NOBODY, warnings.append).runs] == ["good"]
    assert "runs/bad/run.json" in warnings[0]


def test_following_survives_services_that_do_not_answer(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(bucket)
    write_chunk(run.last_attempt(), 0, 1, "one\n")
    provider, warnings = Refusing(DeadlineError("No answer in 60 s.")), list[str]()
    run.warn = warnings.append
    pass_time(bucket, 100)
    real = bucket.objects
    outage = DeadlineError("gs://b does not answer.")

    def fail(*_: object, **__: object) -> list[Object]:
        raise outage

    events: list[Callable[[], object]] = [
        lambda: monkeypatch.setattr(bucket, "objects", fail),
        lambda: None,
        lambda: monkeypatch.setattr(bucket, "objects", real),
        lambda: write_chunk(run.last_attempt(), 0, 2, "two\n"),
        lambda: setattr(provider, "error", None),
    ]
    lines: list[Line] = []
    verdict = follow(
        run,
        Witnesses(provider),
        LogReader(run.last_attempt()),
        lines.append,
        sleep=lambda _: events.pop(0)() and None,
    )
    assert verdict.outcome == runs.STOPPED, "the node is gone"
    assert [line.text for line in lines] == ["one", "two"]
    assert warnings == [
        "What the TPU is doing is unknown: No answer in 60 s. Still following.",
        "gs://b does not answer. Still following.",
        "What the TPU is doing is unknown: No answer in 60 s. Still following.",
    ]


@pytest.mark.parametrize(
    ("datasets", "name", "is_meant"),
    [
        ((), "", True), ((), "pets/1.0.0", True),
        (("pets",), "pets/1.0.0", True), (("pets/1.0.0",), "pets/1.0.0", True),
        (("cars", "pets"), "pets/2.0.0", True),
        (("pets/2.0.0",), "pets/1.0.0", False), (("pet",), "pets/1.0.0", False),
        (("1.0.0",), "pets/1.0.0", False),
        (("pets",), "", False),
    ],
)  # fmt: skip
def test_a_dataset_is_meant_with_or_without_its_version(
    datasets: tuple[str, ...], name: str, is_meant: bool
) -> None:
    assert Selection(datasets=datasets).has_dataset(name) is is_meant
