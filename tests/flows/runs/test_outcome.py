"""What a run's state is called with a verdict and without, what it waits for, and what a verdict keeps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU, write_run
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cloud.ssh import Ssh
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import BucketMissingError, ConfigError, DeadlineError, HostError, NotFoundError
from tpuctl.flows.runs.evidence.decision import HostState, HostWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle, success_of, with_restart
from tpuctl.flows.runs.state import RunState, line_left, unstarted_label, unstarted_reason
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, RUNNING, StopRequest, WorkerStatus, encode
from tpuctl.nodes import PastChange
from tpuctl.recovery import Machine, Restarts
from tpuctl.runs import Attempt, Run, Verdict
from tpuctl.runs import encode as encode_record

TIME = "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("states", "label"),
    [
        (["running", "preparing", "finished"], "preparing"),
        (["running", None], "starting"),
        (["finished", "finished"], "finished"),
        (["running", "queued"], "queued"),  # of a later version
        (["unknown", "running", None], "unknown"),
    ],
)
def test_a_run_without_a_verdict_is_as_far_as_its_slowest_worker(
    states: list[str | None], label: str
) -> None:
    statuses = [WorkerStatus(0, 1, "7", state, TIME) if state else None for state in states]
    assert RunState(None, statuses).label == label


def test_a_run_of_which_nobody_can_say_anything_is_unreachable() -> None:
    statuses = [WorkerStatus(0, 1, "7", "running", TIME)]
    assert RunState(None, statuses, doubt="worker 0 has been silent for 90 s").label == "unreachable"
    assert RunState(None, statuses, unanswered="You may not read it.").label == "unknown"


def test_a_verdict_keeps_why_the_first_script_failed(bucket: Bucket) -> None:
    run = write_run(bucket)
    for worker in range(4):
        status = replace(
            STATUS, worker=worker, state=FINISHED, exit_code=int(worker == 2),
            cause="disk full" * (worker == 2), tail="OSError: [Errno 28]" * (worker == 2),
        )  # fmt: skip
        bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")
    verdict = settle(run, Witnesses(MemoryProvider())).verdict
    assert verdict
    assert (verdict.outcome, verdict.cause, verdict.last_line) == (
        runs.FAILED, "disk full", "OSError: [Errno 28]",
    )  # fmt: skip


@pytest.mark.parametrize("cause", ["preempted", "maintenance"])
@pytest.mark.parametrize("stop", [True, False])
def test_a_run_that_was_asked_to_stop_was_stopped_whatever_becomes_of_its_machine(
    bucket: Bucket, cause: str, stop: bool
) -> None:
    """It may save when the host goes down: nobody starts again what somebody has stopped."""
    run = write_run(bucket)
    for worker in range(4):
        status = replace(STATUS, worker=worker, state=FINISHED, exit_code=143, stopped="SIGTERM", cause=cause)
        bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")
    if stop:
        bucket.create(run.paths.stop, encode(StopRequest("r1", "ada@example.com", TIME)))
    verdict = settle(run, Witnesses(MemoryProvider())).verdict
    assert verdict
    assert verdict.outcome == (runs.STOPPED if stop else cause)
    assert verdict.stopped_by == "ada@example.com" * stop
    announced = {"preempted": "its preemption", "maintenance": "its maintenance"}[cause]
    asked = "stopped by ada@example.com; " * stop
    assert verdict.evidence == f"{asked}the host of worker 0 announced {announced} and stopped it"


def test_what_is_no_request_to_stop_a_run_changes_nothing(bucket: Bucket) -> None:
    run = write_run(bucket)
    for worker in range(4):
        status = replace(STATUS, worker=worker, state=FINISHED, stopped="SIGTERM", cause="preempted")
        bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")
    bucket.create(run.paths.stop, encode(StopRequest("r2", "ada@example.com", TIME)))
    verdict = settle(run, Witnesses(MemoryProvider())).verdict
    assert verdict
    assert (verdict.outcome, verdict.stopped_by) == (runs.PREEMPTED, "")


def deleted() -> None:
    """Answer as where the bucket does not exist."""
    raise BucketMissingError("The bucket gs://b does not exist.", hint="Create it.")


class Memory:
    """The run r1 of workers 0 and 1 in a bucket in memory."""

    def __init__(self, **changes: Any) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        self.provider = MemoryProvider(node(id=TPU.id))
        run = Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
        self.run.create(msgspec.structs.replace(run, **changes))
        self.run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0, 1)))

    @property
    def run(self) -> StoredRun:
        return StoredRun(self.bucket, "r1")

    def say(self, worker: int, **changes: Any) -> None:
        status = replace(STATUS, worker=worker, **changes)
        self.memory.put(self.run.paths.status(1, worker), encode(status))

    def settle(self) -> RunState:
        return settle(self.run, Witnesses(self.provider))


MACHINE = Machine("v3-32", ("z",), False, "base", "ada")
FAILS = {"state": FINISHED, "exit_code": 3}
PREEMPTED = {"state": FINISHED, "stopped": "SIGTERM", "cause": "preempted"}


class TestRestart:
    def ended(self, restarts: Restarts, stop: bool = False, **changes: Any) -> Verdict:
        site = Memory(restarts=restarts, machine=MACHINE)
        site.memory.put("runs/r1/checkpoints/model-7.pt", b"x")
        if stop:
            site.memory.put("runs/r1/stop.json", encode(StopRequest("r1", "bob", TIME)))
        for worker in (0, 1):
            site.say(worker, **changes)
        verdict = site.settle().verdict
        assert verdict
        return verdict

    def test_a_loss_is_followed_by_another_attempt(self) -> None:
        verdict = self.ended(Restarts(after_loss=1), **PREEMPTED)
        assert (verdict.outcome, verdict.restarts, verdict.checkpoint) == (runs.PREEMPTED, True, "model-7.pt")
        assert verdict.evidence.endswith("announced its preemption and stopped it")

    def test_a_run_that_nobody_wants_again_says_nothing_of_it(self) -> None:
        verdict = self.ended(Restarts(), **PREEMPTED)
        assert (verdict.restarts, verdict.checkpoint) == (False, "")
        assert "not restarted" not in verdict.evidence

    def test_one_that_is_not_started_again_says_why(self) -> None:
        site = Memory(restarts=Restarts(after_failure=1), machine=MACHINE)
        earlier = Verdict("r1", runs.FAILED, 1, CREATED, "because", 4, runs.BY_WORKERS, tpu=TPU)
        site.memory.put(site.run.paths.attempt_verdict(1), encode_record(earlier))
        last = Verdict("r1", runs.FAILED, 2, CREATED, "it failed again", 3, runs.BY_WORKERS, tpu=TPU)
        verdict = with_restart(site.run, last)
        assert (verdict.restarts, verdict.exit_code) == (False, 3)
        assert verdict.evidence.startswith("it failed again; not restarted: it has used up ")

    def test_a_success_is_the_end(self) -> None:
        verdict = self.ended(Restarts(after_loss=None, after_failure=3), state=FINISHED, exit_code=0)
        assert (verdict.outcome, verdict.restarts, verdict.checkpoint) == (runs.SUCCEEDED, False, "")

    def test_who_asks_to_stop_it_ends_it(self) -> None:
        verdict = self.ended(Restarts(after_failure=2), stop=True, **FAILS)
        assert (verdict.outcome, verdict.stopped_by, verdict.restarts, verdict.exit_code) == (
            runs.STOPPED, "bob", False, None,
        )  # fmt: skip
        assert verdict.evidence == "stopped by bob (failed: worker 0's script ended with exit code 3)"

    def test_a_request_to_stop_changes_no_failure_that_is_the_last(self) -> None:
        verdict = self.ended(Restarts(), stop=True, **FAILS)
        assert (verdict.outcome, verdict.stopped_by) == (runs.FAILED, "")


class TestStop:
    """A worker was ended by a signal of its host, which does not say why."""

    def ended(self, *verbs: str, **changes: Any) -> Verdict:
        site = Memory(restarts=Restarts(after_loss=1), machine=MACHINE)
        began = site.memory.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        for verb in verbs:
            site.provider.past_changes.append(PastChange(TPU.zone, TPU.name, verb, began))
        for worker in (0, 1):
            site.say(worker, state=FINISHED, stopped="SIGTERM", exit_code=143, **changes)
        assert site.settle().verdict is None, "the node would show why"
        site.memory.pass_time(31)
        verdict = site.settle().verdict
        assert verdict
        return verdict

    def test_it_was_maintenance_where_the_provider_remembers_that(self) -> None:
        verdict = self.ended("stop", "performMaintenance")
        assert (verdict.outcome, verdict.restarts) == (runs.MAINTENANCE, True)
        assert verdict.evidence == (
            "worker 0 was ended by SIGTERM: "
            "the provider began maintenance of its node at 2026-01-01T12:00:00Z"
        )

    def test_it_was_stopped_where_it_does_not(self) -> None:
        verdict = self.ended("stop")
        assert (verdict.outcome, verdict.evidence) == (runs.STOPPED, "worker 0 was ended by SIGTERM")
        assert not verdict.restarts


class TestRefusal:
    """The bucket takes no last word, or no verdict."""

    def test_the_word_of_a_host_counts_and_why_it_is_not_in_the_bucket_is_said(self) -> None:
        site = Memory()
        for worker in (0, 1):
            site.say(worker, state=RUNNING, pid=7)
        site.memory.pass_time(60)
        refused = {
            "exit_code": 0,
            "finished": "2026-01-01T12:00:45Z",
            "refusal": "403 Object is under retention.",
        }

        class Hosts(Witnesses):
            def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
                last = replace(STATUS, state=RUNNING, pid=7, **refused)
                words = {0: HostWord(HostState.ALIVE), 1: HostWord(HostState.ALIVE)}
                for worker in told:
                    words[worker] = HostWord(HostState.ALIVE, last=replace(last, worker=worker))
                return {worker: words[worker] for worker in workers}

        told = [1]
        assert settle(site.run, Hosts(site.provider)).verdict is None, "worker 0 goes on"
        told = [0, 1]
        verdict = settle(site.run, Hosts(site.provider)).verdict
        assert verdict
        assert (verdict.outcome, verdict.basis) == (runs.SUCCEEDED, runs.BY_WORKERS)
        assert verdict.evidence == (
            "every worker's script ended with exit code 0; the last word of worker 0 could not be written: "
            "403 Object is under retention"
        )
        assert verdict.ended == "2026-01-01T12:00:45Z"
        assert success_of(verdict) == (
            "Run 'r1' succeeded; the last word of worker 0 could not be written: "
            "403 Object is under retention."
        )

    def test_a_bucket_that_was_deleted_leaves_the_word_of_the_hosts(self) -> None:
        site = Memory()
        for worker in (0, 1):
            site.say(worker, state=RUNNING, pid=7)
        run, hosts = site.run, dict[int, HostWord]()

        class Hosts(Witnesses):
            def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
                return {worker: hosts[worker] for worker in workers}

        assert settle(run, Hosts(site.provider)).label == "running"
        site.memory.meanwhile = deleted
        with pytest.raises(BucketMissingError):
            settle(site.run, Hosts(site.provider))
        site.memory.pass_time(60)
        for worker in (0, 1):
            hosts[worker] = HostWord(HostState.ALIVE)
        state = settle(run, Hosts(site.provider))
        assert (state.verdict, state.label, state.reason) == (
            None, "unreachable", "the bucket gs://b does not exist",
        )  # fmt: skip
        last = replace(STATUS, state=RUNNING, pid=7, exit_code=0, finished="2026-01-01T12:00:45Z")
        for worker in (0, 1):
            said = replace(last, worker=worker, refusal="404 The specified bucket does not exist.")
            hosts[worker] = HostWord(HostState.GONE, last=said)
        verdict = settle(run, Hosts(site.provider)).verdict
        assert verdict
        assert (verdict.outcome, verdict.basis, verdict.restarts) == (runs.SUCCEEDED, runs.BY_WORKERS, False)
        assert verdict.evidence == (
            "every worker's script ended with exit code 0; the last word of worker 0 could not be written: "
            "404 The specified bucket does not exist"
        )
        site.provider.nodes.clear()
        gone = settle(run, Hosts(site.provider)).verdict
        assert gone
        assert (gone.outcome, gone.evidence) == (runs.STOPPED, "the node was deleted")

    def test_who_may_not_write_a_verdict_learns_it_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = Memory()
        for worker in (0, 1):
            site.say(worker, **FAILS)

        def refuse(*_: object) -> None:
            raise ConfigError("No permission.")

        monkeypatch.setattr(site.memory, "create", refuse)
        for _ in range(2):
            verdict = site.settle().verdict
            assert verdict
            assert (verdict.outcome, verdict.exit_code) == (runs.FAILED, 3)
        assert site.memory.get("runs/r1/verdict.json") is None


class TestSilence:
    def test_the_worker_that_was_lost_is_named(self) -> None:
        site = Memory()
        site.say(0, state=FINISHED, exit_code=0)
        site.say(1, state=RUNNING, pid=7)
        site.memory.pass_time(1000)

        def unreachable() -> Ssh:
            raise HostError("No answer.")

        verdict = settle(site.run, Witnesses(site.provider, unreachable)).verdict
        assert verdict
        assert (verdict.outcome, verdict.worker, verdict.silent) == (runs.LOST, 1, (1,))
        assert verdict.ended == "2026-01-01T12:00:00Z"
        assert verdict.decided == "2026-01-01T12:16:40Z"

    def test_a_failure_names_the_worker_and_no_silence(self) -> None:
        site = Memory()
        site.say(0, state=FINISHED, exit_code=0)
        site.say(1, **FAILS)
        verdict = site.settle().verdict
        assert verdict
        assert (verdict.worker, verdict.silent) == (1, ())

    @pytest.mark.parametrize(("seconds", "doubt"), [(60, ""), (600, "worker 1 has been silent for 600 s")])
    def test_before_that_nobody_knows(self, seconds: float, doubt: str) -> None:
        site = Memory()
        site.say(1, state=RUNNING, pid=7)
        site.memory.pass_time(seconds)
        site.say(0, state=RUNNING, pid=7)
        state = site.settle()
        assert (state.verdict, state.doubt) == (None, doubt)
        assert (state.last, state.node, state.recorded) == (1, TPU, "2026-01-01T12:00:00Z")

    def test_a_provider_that_does_not_answer_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        site = Memory()

        def fail(*_: object) -> None:
            raise DeadlineError("No answer from the Cloud TPU API.")

        monkeypatch.setattr(site.provider, "get_node", fail)
        site.memory.pass_time(600)
        assert site.settle().unanswered == "No answer from the Cloud TPU API."

    def test_a_run_that_was_stopped_before_it_had_an_attempt_has_only_a_verdict(self) -> None:
        memory = MemoryBucket()
        run = StoredRun(cast("Bucket", memory), "r1")
        verdict = Verdict("r1", runs.STOPPED, 1, CREATED, "stopped by bob", stopped_by="bob")
        memory.put("runs/r1/verdict.json", encode_record(verdict))
        assert settle(run, Witnesses(MemoryProvider())).verdict == verdict
        with pytest.raises(NotFoundError):
            settle(StoredRun(cast("Bucket", MemoryBucket()), "r1"), Witnesses(MemoryProvider()))

    def test_a_verdict_that_is_closed_is_not_looked_into(self) -> None:
        site = Memory()
        site.say(0, **FAILS)
        site.say(1, **FAILS)
        assert site.settle().verdict
        site.memory.put("runs/r1/attempts/1/attempt.json", b"{")
        assert site.settle().label == "failed"


EARLY, LATE = "2026-01-01T11:00:00Z", "2026-01-01T11:30:00Z"
VERDICT = Verdict("r1", runs.FAILED, 3, CREATED, "worker 0's script ended with exit code 1", tpu=TPU)
BAD = BadObjectError("verdict.json", "is no JSON")


def word(state: str = "running", **fields: object) -> WorkerStatus:
    return replace(STATUS, state=state, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statuses", "start"),
    [
        ([word(started=LATE), word(started=EARLY), None], LATE),
        ([word("queued"), None], ""),
        ([], ""),
        ([None], ""),
        ([word("queued"), word("ready", started=EARLY)], ""),
        ([word("preparing")], ""),
        ([word("unknown")], None),
        ([word("running")], None),
        ([word("finished")], ""),
        ([word("finished", pid=7)], None),
        ([word("finished", exit_code=0)], None),
        ([word("finished", started="soon")], ""),
        ([word("queued", started=EARLY)], ""),  # an earlier version says when it joined the line
    ],
)
def test_the_last_worker_to_leave_the_line_says_when(
    statuses: list[WorkerStatus | None], start: str | None
) -> None:
    assert line_left(statuses) == start


@pytest.mark.parametrize(("seconds", "label"), [(0, "not started"), (600, "not started"), (601, "abandoned")])
def test_a_submission_has_ten_minutes_to_start(seconds: float, label: str) -> None:
    assert unstarted_label(seconds) == label
    reason = "its submission ended before it started anything; the same command with --name r1 starts it"
    assert unstarted_reason("r1", seconds) == (reason if label == "abandoned" else "")


class TestRunState:
    def test_a_verdict_says_all(self) -> None:
        state = RunState(VERDICT, [word()], doubt="silence", unanswered="no answer", node=None, last=9)
        assert (state.label, state.reason, state.attempt, state.tpu) == ("failed", VERDICT.evidence, 3, TPU)

    def test_what_cannot_be_read_is_unknown(self) -> None:
        state = RunState(VERDICT, error=BAD)
        assert (state.label, state.reason) == ("unknown", BAD.message)

    def test_while_it_goes_on_its_last_attempt_says_where(self) -> None:
        state = RunState(None, [word()], node=TPU, last=2)
        assert (state.attempt, state.tpu, state.reason, state.ahead) == (2, TPU, "", 0)
        assert (RunState(None).attempt, RunState(None).tpu) == (0, None)

    def test_a_run_that_waits_says_for_how_many(self) -> None:
        statuses = [word("queued", ahead=1), None, word("queued", ahead=3), word("running", ahead=7)]
        state = RunState(None, statuses)
        assert (state.ahead, state.reason, state.label) == (3, "3 ahead", "starting")

    def test_a_run_that_prints_nothing_says_so_after_ten_minutes(self) -> None:
        for quiet, reason in (
            (None, ""), (599, ""), (600, "no output for 10 min"), (7199, "no output for 119 min"),
            (7200, "no output for 2 h"),
        ):  # fmt: skip
            assert RunState(None, [word()], quiet=quiet).reason == reason
        assert RunState(None, [word()], doubt="silence", quiet=600).reason == "silence"

    def test_a_provider_that_does_not_answer_comes_before_the_silence(self) -> None:
        state = RunState(None, [word()], doubt="silence", unanswered="no answer")
        assert (state.label, state.reason) == ("unknown", "no answer")
        assert RunState(None, [word()], doubt="silence").reason == "silence"

    def test_scripts_that_hold_no_chip_are_counted_before_those_that_print_nothing(self) -> None:
        none, held, past = word(has_no_chip=True), word(), word("finished", has_no_chip=True)
        for statuses, reason in (
            ([none], "holds no TPU chip: running on the CPU?"),
            ([none, none, past, None], "holds no TPU chip: running on the CPU?"),
            ([none, held, held], "1 of 3 workers holds no TPU chip: running on the CPU?"),
            ([none, held, none], "2 of 3 workers hold no TPU chip: running on the CPU?"),
            ([past, held], "no output for 20 min"),
        ):
            assert RunState(None, statuses, quiet=1200.0).reason == reason

    def test_the_slowest_worker_counts(self) -> None:
        order = ["starting", "queued", "preparing", "ready", "running", "finished"]
        words = {name: None if name == "starting" else word(name) for name in order}
        for slow, fast in itertools.pairwise(order):
            assert RunState(None, [words[fast], words[slow]]).label == slow
            assert RunState(None, [words[slow], words[fast]]).label == slow
