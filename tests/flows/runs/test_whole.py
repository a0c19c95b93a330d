"""A whole run: how far it has come, what goes on and bills where it stops, and its start anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS
from tpuctl import runs
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    DeclinedError,
    HostError,
    InterruptedByUser,
    NotFoundError,
    StockoutError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.runs import whole as flow
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.lease import BUSY, ENDED_FOR_GOOD, GOES_ON, RESTARTED, WAITS, WatchEvent
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.plan import SubmitRequest
from tpuctl.flows.runs.whole import (
    EARLIER,
    Phase,
    Position,
    Stage,
    failed,
    interrupted,
    look,
    new_name,
    require_same,
)
from tpuctl.host.worker.records import encode
from tpuctl.runs import BY_MACHINE, Run, Verdict

TYPED = ("run", "job.py", "--name", "r1")
AGAIN = "tpuctl run job.py --name r1"


def position(phase: Phase, node: str = "n1", *, has_node: bool = True, is_kept: bool = False) -> Position:
    return Position("r1", TYPED, phase, node, "z" if node else "", has_node, is_kept)


@pytest.mark.parametrize(
    ("at", "standing", "commands"),
    [
        (position(Phase.CREATING, has_node=False),
          "run 'r1' is not started yet, and node 'n1' in z may bill.",
         "Continue: {again}\nDelete the node: tpuctl down n1"),
        (position(Phase.STARTING), "run 'r1' may have started, and goes on then, and node 'n1' in z bills.",
         "Continue: {again}\nStop the run: tpuctl cancel r1\nDelete the node: tpuctl down n1"),
        (position(Phase.RUNNING), "run 'r1' goes on, and node 'n1' in z bills.",
         "Continue: {again}\nStop the run: tpuctl cancel r1\nDelete the node: tpuctl down n1"),
        (position(Phase.RUNNING, is_kept=True), "run 'r1' goes on, and node 'n1' in z bills.",
         "Continue: {again}\nStop the run: tpuctl cancel r1"),
        (position(Phase.RESTARTING, ""), "run 'r1' is to be started again.",
         "Continue: {again}\nStop the run: tpuctl cancel r1"),
        (position(Phase.FETCHING),
          "run 'r1' has ended, and its files are not all here, and node 'n1' in z bills.",
         "Continue: {again}\nDelete the node: tpuctl down n1"),
        (position(Phase.DELETING), "run 'r1' has ended, and its files are here, and node 'n1' in z bills.",
         "Continue: {again}\nDelete the node: tpuctl down n1"),
        (position(Phase.DELETING, is_kept=True),
         "run 'r1' has ended, and its files are here, and node 'n1' in z bills.", "Continue: {again}"),
    ],
)  # fmt: skip
def test_ctrl_c_says_what_goes_on_and_what_bills(at: Position, standing: str, commands: str) -> None:
    error = interrupted(at, KeyboardInterrupt())
    assert error.message == f"Interrupted; {standing}"
    assert error.hint == commands.format(again=AGAIN)
    assert error.facts == {"run": "r1", **({"may_bill": ["n1 in z"]} if at.node else {})}


def test_ctrl_c_in_a_creation_says_in_which_zones_the_node_may_be() -> None:
    creating = InterruptedByUser("Interrupted.", may_bill=["n1 in z", "n1 in y"])
    error = interrupted(Position("r1", AGAIN, Phase.CREATING, "n1"), creating)
    assert error.message.endswith("and node 'n1' in z or y may bill.")


def test_ctrl_c_before_anything_was_sent_says_so() -> None:
    error = interrupted(Position("r1", TYPED), KeyboardInterrupt())
    assert (error.message, error.hint, error.facts) == ("Interrupted; nothing was started.", "", {})


def test_before_anybody_knows_how_far_a_named_run_is_what_it_has_may_bill() -> None:
    """An earlier command may have made its TPU; this one was ended while it looked."""
    named = Position("r1", TYPED, is_named=True)
    stopped = interrupted(named, KeyboardInterrupt())
    assert stopped.message == (
        "Interrupted; this command has started nothing. "
        "What an earlier one has begun for run 'r1' goes on, and may bill."
    )
    assert stopped.hint == f"{EARLIER}\nContinue: {named.again}"
    refused = failed(named, ConfigError("No permission.", hint="Ask."))
    assert isinstance(refused, ConfigError)
    assert refused.hint == f"Ask.\n{EARLIER}"
    assert getattr(failed(named, UsageError("Wrong.", hint="")), "hint", None) == ""


class TestFailure:
    def test_before_anything_was_sent_is_as_it_is(self) -> None:
        error = failed(Position("r1", TYPED), HostError("No.", hint="Look."))
        assert isinstance(error, TpuctlError)
        assert (error.message, error.hint, error.facts) == ("No.", "Look.", {})

    @pytest.mark.parametrize(
        ("error", "hint"),
        [
            (StockoutError("No.", hint="Wait."),
             f"Try again: {AGAIN}\nTry every zone: {AGAIN} --zone any\n"
             f"Keep trying: {AGAIN} --wait-capacity 6h"),
            (HostError("No.", hint="Look."), f"Look.\nTry again: {AGAIN}"),
            (HostError("No."), f"Try again: {AGAIN}"),
            (HostError("No.", hint="Look.", may_bill=["n1"]), "Look."),
            (StockoutError("No.", hint="Look.", may_bill=["n1"]), "Look."),
        ],
    )  # fmt: skip
    def test_of_a_creation_has_said_what_bills(self, error: TpuctlError, hint: str) -> None:
        bills = error.facts.get("may_bill")
        told = failed(position(Phase.CREATING, has_node=False), error)
        assert told is error
        assert isinstance(told, TpuctlError)
        assert (told.message, told.hint, told.facts["run"]) == ("No.", hint, "r1")
        assert told.facts.get("may_bill") == bills

    @pytest.mark.parametrize(("node", "bills"), [("n1", {"may_bill": ["n1 in z"]}), ("", {})])
    def test_of_a_run_says_what_goes_on(self, node: str, bills: dict[str, object]) -> None:
        at = position(Phase.RUNNING, node)
        error = failed(at, HostError("It is lost.", hint="Look."))
        assert isinstance(error, TpuctlError)
        assert error.message == f"It is lost. R{at.standing[1:]}"
        assert error.hint == f"Look.\n{at.commands}"
        assert error.facts == {"run": "r1", **bills}

    def test_that_says_what_bills_is_only_told_how_to_continue(self) -> None:
        at = position(Phase.STARTING)
        error = failed(at, HostError("It is lost.", may_bill=["n2"], run="r0"))
        assert isinstance(error, TpuctlError)
        assert (error.message, error.hint) == ("It is lost.", at.commands)
        assert error.facts == {"may_bill": ["n2"], "run": "r0"}

    def test_between_the_node_and_the_start_says_what_bills(self) -> None:
        at = position(Phase.CREATING)
        error = failed(at, DeclinedError("No."))
        assert isinstance(error, TpuctlError)
        assert error.message == "No. Run 'r1' is not started yet, and node 'n1' in z bills."
        assert error.hint == f"Continue: {AGAIN}\nDelete the node: tpuctl down n1"

    def test_that_is_a_bug_has_it_as_a_note(self) -> None:
        at = position(Phase.FETCHING)
        bug = failed(at, OSError(28, "No space left on device"))
        assert bug.__notes__ == [f"R{at.standing[1:]} {at.commands}"]


def test_a_node_of_which_nothing_is_known_may_bill() -> None:
    at = Position("r1", TYPED, Phase.CREATING, "n1")
    assert at.standing == "run 'r1' is not started yet, and node 'n1' may bill."


PAUSES = [*islice(watch.PAUSES.pauses(), 3)]


def event(action: str, detail: str = "because") -> WatchEvent:
    return WatchEvent("r1", 2, action, detail)


class Reports(list[str]):
    """What a command says."""

    @property
    def report(self) -> Any:
        return self.append


def awaited(
    monkeypatch: pytest.MonkeyPatch, *steps: WatchEvent | TpuctlError | KeyboardInterrupt, **patience: float
) -> tuple[list[str], list[float]]:
    """Wait through these steps, all of them, and return what was said and the pauses between."""
    left, reports, pauses = list(steps), Reports(), list[float]()

    def step(run: StoredRun, tools: object) -> WatchEvent:
        taken = left.pop(0)
        if isinstance(taken, WatchEvent):
            return taken
        raise taken

    monkeypatch.setattr(flow, "step", step)
    run = StoredRun(cast("Any", MemoryBucket()), "r1")
    flow.await_restart(run, cast("Any", reports), pauses.append, **patience)
    assert left == []
    return [*reports], pauses


@pytest.mark.parametrize("action", [GOES_ON, RESTARTED, ENDED_FOR_GOOD])
def test_what_is_decided_at_once_is_not_said(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    assert awaited(monkeypatch, event(action)) == ([], [])


def test_each_reason_to_wait_is_said_once_and_so_is_the_end_of_the_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [event(WAITS, "no zone"), event(WAITS, "no zone"), event(WAITS, "no quota"), event(RESTARTED)]
    reports, pauses = awaited(monkeypatch, *steps)
    assert reports == [steps[0].line, steps[2].line, steps[3].line]
    assert pauses == PAUSES


def test_another_watcher_is_looked_at_more_often_than_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, pauses = awaited(monkeypatch, event(BUSY), event(BUSY), event(WAITS), event(GOES_ON))
    assert pauses == [watch.INTERVAL, watch.INTERVAL, PAUSES[0]]
    assert reports == [event(BUSY).line, event(WAITS).line, event(GOES_ON).line]


def test_a_service_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, pauses = awaited(monkeypatch, DeadlineError("No answer."), event(GOES_ON))
    assert reports == [WatchEvent("r1", 0, WAITS, "No answer.").line, event(GOES_ON).line]
    assert pauses == PAUSES[:1]


@pytest.mark.parametrize(
    "error", [UsageError("A value is missing."), NotFoundError("No run."), InterruptedByUser("Interrupted.")]
)
def test_what_another_step_would_only_repeat_is_an_error(
    monkeypatch: pytest.MonkeyPatch, error: TpuctlError
) -> None:
    with pytest.raises(type(error)):
        awaited(monkeypatch, error)


def test_patience_has_an_end_where_it_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [DeadlineError("No answer."), event(BUSY), event(WAITS, "no zone")]
    patience = sum(PAUSES[:1]) + watch.INTERVAL
    with pytest.raises(DeadlineError, match="no zone"):
        awaited(monkeypatch, *steps, event(GOES_ON), patience=patience)
    reports, pauses = awaited(monkeypatch, *steps[:2], event(GOES_ON), patience=patience)
    assert (len(reports), pauses) == (3, [PAUSES[0], watch.INTERVAL])


RECORD = Run("r1", CREATED, "ada@laptop", "jobs/train.py", ("--rate", "1"), "0" * 64, "jax", "v3-32", (), {})
ENDED = Verdict("r1", runs.FAILED, 1, CREATED, "because", 1, BY_MACHINE, tpu=ATTEMPT.tpu)
RESTARTS = msgspec.structs.replace(ENDED, restarts=True)


@pytest.mark.parametrize(
    ("stage", "is_over", "is_restarted"),
    [
        (Stage(), False, False),
        (Stage(attempt=1), False, False),
        (Stage(attempt=2), False, True),
        (Stage(ENDED, attempt=1), True, False),
        (Stage(ENDED, attempt=2), True, True),
        (Stage(RESTARTS, attempt=1), False, True),
    ],
)
def test_a_run_is_over_unless_another_attempt_follows(
    stage: Stage, is_over: bool, is_restarted: bool
) -> None:
    assert (stage.is_over, stage.is_restarted) == (is_over, is_restarted)


@pytest.fixture
def memory() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def run(memory: MemoryBucket) -> StoredRun:
    """A run that is recorded, and was not started."""
    run = StoredRun(cast("Any", memory), "r1")
    run.create(RECORD)
    return run


def stage_of(run: StoredRun) -> Stage:
    """Return the stage as another command finds it."""
    witnesses = Witnesses(MemoryProvider(node(ATTEMPT.tpu.name, id=ATTEMPT.tpu.id)))
    return look(StoredRun(run.bucket, "r1"), witnesses)


class TestLook:
    def test_a_run_without_an_attempt_is_at_its_beginning(self, run: StoredRun) -> None:
        assert stage_of(run) == Stage()
        run.end(ENDED)
        assert stage_of(run) == Stage(ENDED)

    def test_a_run_is_launched_once_every_worker_has_spoken(
        self, run: StoredRun, memory: MemoryBucket
    ) -> None:
        run.create_attempt(ATTEMPT)
        for worker in ATTEMPT.workers:
            assert stage_of(run) == Stage(None, ATTEMPT.tpu, 1, is_launched=False)
            memory.put(run.paths.status(1, worker), encode(replace(STATUS, worker=worker)))
        assert stage_of(run) == Stage(None, ATTEMPT.tpu, 1, is_launched=True)

    def test_a_run_that_has_ended_has_a_verdict(self, run: StoredRun) -> None:
        run.create_attempt(ATTEMPT)
        run.end(ENDED)
        assert stage_of(run) == Stage(ENDED, ATTEMPT.tpu, 1, is_launched=False)

    def test_an_attempt_that_ended_before_its_start_counts_as_none(self, run: StoredRun) -> None:
        run.create_attempt(ATTEMPT)
        run.end(msgspec.structs.replace(ENDED, cause=runs.UNSTARTED))
        assert stage_of(run) == Stage()


class TestSameName:
    def request(self, script: str, *arguments: str) -> Any:
        return SimpleNamespace(script=Path(script), arguments=arguments)

    def test_of_a_run_that_does_not_exist_yet_is_free(self, memory: MemoryBucket) -> None:
        require_same(StoredRun(cast("Any", memory), "r2"), self.request("other.py"))

    @pytest.mark.parametrize("script", ["train.py", "elsewhere/train.py"])
    def test_with_the_same_script_and_arguments_means_the_run(self, run: StoredRun, script: str) -> None:
        require_same(run, self.request(script, "--rate", "1"))

    @pytest.mark.parametrize(
        "words", [("other.py", "--rate", "1"), ("train.py", "--rate", "2"), ("train.py",)]
    )
    def test_of_another_script_or_with_other_arguments_is_taken(
        self, run: StoredRun, words: tuple[str, ...]
    ) -> None:
        with pytest.raises(ConflictError) as caught:
            require_same(run, self.request(*words))
        assert caught.value.message == (
            "There is a run 'r1' already, of jobs/train.py or with other arguments."
        )
        assert caught.value.hint == "Choose another --name, or none."


def test_two_runs_of_one_second_have_two_names() -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    names = {new_name(SubmitRequest("train.py"), at) for _ in range(8)}
    assert len(names) > 1
    ends = {name.rpartition("-")[2] for name in names}
    assert {len(end) for end in ends} == {4}
