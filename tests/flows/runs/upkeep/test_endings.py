"""Whether a run has ended for sure: what keeps it from being removed, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU
from tpuctl import runs
from tpuctl.flows.runs.evidence.decision import HostState, HostWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.state import ABANDONED
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep.removal import REST, StillNeededError, ended_state, unstarted_state
from tpuctl.host.worker.records import FINISHED, RUNNING
from tpuctl.host.worker.records import encode as encode_word
from tpuctl.nodes import NodeState
from tpuctl.recovery import Lease
from tpuctl.runs import BY_MACHINE, BY_SILENCE, BY_WORKERS, Attempt, Run, Verdict
from tpuctl.runs import encode as encode_run

RECORD = Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
PAIR = msgspec.structs.replace(ATTEMPT, workers=(0, 1))
FAILED = Verdict("r1", runs.FAILED, 1, CREATED, "because", 1, BY_WORKERS, tpu=TPU)


class PlayedWitnesses(Witnesses):
    """Hosts whose answers are known beforehand."""

    def __init__(self, state: NodeState, answers: Sequence[HostState]) -> None:
        super().__init__(MemoryProvider(node(TPU.name, state, id=TPU.id)))
        self._host_states = answers
        self.asked: list[int] = []

    def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
        self.asked += workers
        return {worker: HostWord(self._host_states[worker]) for worker in workers if self._host_states}


class Site:
    """The run r1 in a bucket in memory."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.run = StoredRun(cast("Any", self.memory), "r1")
        self.node = NodeState.READY
        self.hosts: tuple[HostState, ...] = ()

    def submit(self, attempt: Attempt | None = PAIR) -> None:
        self.run.create(RECORD)
        if attempt:
            self.run.create_attempt(attempt)

    def say(self, worker: int, state: str) -> None:
        status = replace(STATUS, worker=worker, state=state)
        self.memory.put(self.run.paths.status(1, worker), encode_word(status))

    def end(self, verdict: Verdict = FAILED, *words: str) -> None:
        """Submit the run, write what its workers said last, and the verdict."""
        self.submit()
        for worker, state in enumerate(words):
            self.say(worker, state)
        self.run.end(verdict)

    @property
    def witnesses(self) -> PlayedWitnesses:
        return PlayedWitnesses(self.node, self.hosts)

    def outcome(self, *, writes: bool = True) -> str | None:
        """Return how the run has ended."""
        state = ended_state(StoredRun(cast("Any", self.memory), "r1"), self.witnesses, writes=writes)
        return state.verdict.outcome if state and state.verdict else None

    def refusal(self, *, writes: bool = True) -> tuple[str, str]:
        """Return message and hint of what keeps the run."""
        with pytest.raises(StillNeededError) as caught:
            self.outcome(writes=writes)
        assert caught.value.facts["run"] == "r1"
        return caught.value.message, caught.value.hint


@pytest.fixture
def site() -> Site:
    return Site()


class TestWithoutAnAttempt:
    def test_a_run_may_be_on_its_way_for_a_while(self, site: Site) -> None:
        site.submit(None)
        site.memory.pass_time(600)
        assert site.refusal() == (
            "Run 'r1' was submitted just now: its start may be on its way.", "End it first: tpuctl cancel r1",
        )  # fmt: skip
        site.memory.pass_time(1)
        assert site.outcome() is None
        assert unstarted_state(site.run) == ABANDONED

    def test_a_rest_without_a_record_is_no_run(self, site: Site) -> None:
        site.memory.put("runs/r1/outputs/x", b"x")
        assert site.outcome() is None
        assert unstarted_state(site.run) == REST

    def test_a_run_that_was_ended_before_is_over(self, site: Site) -> None:
        site.submit(None)
        site.run.end(Verdict("r1", runs.STOPPED, 1, CREATED, "stopped by ada", basis=BY_MACHINE))
        assert site.outcome() == runs.STOPPED

    def test_a_verdict_that_cannot_be_read_says_nothing_of_its_end(self, site: Site) -> None:
        site.submit(None)
        site.memory.put(site.run.paths.verdict, b"{")
        assert site.refusal()[0].startswith(
            f"Run 'r1' cannot be read, so nobody knows whether it has ended: {site.run.paths.verdict} "
        )


class TestVerdict:
    def test_of_all_workers_is_an_end(self, site: Site) -> None:
        site.end(FAILED, FINISHED, FINISHED)
        assert site.outcome() == runs.FAILED
        assert site.outcome(writes=False) == runs.FAILED

    def test_that_is_missing_is_none(self, site: Site) -> None:
        site.submit()
        site.say(0, RUNNING)
        site.say(1, RUNNING)
        assert site.refusal() == ("Run 'r1' has not ended (running).", "Stop it first: tpuctl cancel r1")
        assert site.refusal(writes=False) == (
            "Run 'r1' has not ended.", "Stop it first: tpuctl cancel r1"
        )  # fmt: skip

    def test_that_another_attempt_follows_is_none(self, site: Site) -> None:
        verdict = msgspec.structs.replace(FAILED, outcome=runs.PREEMPTED, basis=BY_MACHINE, restarts=True)
        site.end(verdict)
        assert site.refusal(writes=False) == (
            "Run 'r1' is to be started again (preempted).", "End it first: tpuctl cancel r1"
        )  # fmt: skip

    @pytest.mark.parametrize(("tpu", "name"), [(TPU, "n1"), (None, "its TPU")])
    def test_that_is_a_guess_is_none(self, site: Site, tpu: runs.Tpu | None, name: str) -> None:
        site.end(Verdict("r1", runs.LOST, 1, CREATED, "worker 0 was silent", basis=BY_SILENCE, tpu=tpu))
        assert site.refusal(writes=False) == (
            "Run 'r1' may go on: worker 0 was silent. Silence does not say that it has ended.",
            f"See: tpuctl why {name}\nEnd whatever runs there: tpuctl down {name}",
        )

    @pytest.mark.parametrize(
        ("seconds", "claimed", "is_over", "outcome"),
        [
            (60, 60, False, None), (61, 60, False, runs.FAILED), (0, 60, True, runs.FAILED),
            (61, 3600, False, runs.FAILED),
        ],
    )  # fmt: skip
    def test_counts_unless_somebody_starts_the_run_again(
        self, site: Site, seconds: float, claimed: int, is_over: bool, outcome: str | None
    ) -> None:
        site.end(FAILED, FINISHED, FINISHED)
        lease = Lease("r1", 2, "token", "bob@desk", claimed, is_over=is_over)
        site.memory.put(site.run.paths.lease(2), encode_run(lease))
        site.memory.pass_time(seconds)
        if outcome:
            assert site.outcome() == outcome
        else:
            assert site.refusal() == ("Run 'r1' is being started again by bob@desk.", "tpuctl wait r1")


class TestWorkers:
    MESSAGE = "Run 'r1' may go on: worker 1 did not say that the script ended."

    def test_that_did_not_say_that_they_ended_may_be_at_work(self, site: Site) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.hosts = (HostState.ALIVE, HostState.ALIVE)
        assert site.refusal() == (self.MESSAGE, "See: tpuctl why n1")
        site.hosts = (HostState.ALIVE, HostState.NO_ANSWER)
        assert site.refusal()[0] == self.MESSAGE

    def test_that_nobody_asks_may_be_at_work(self, site: Site) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        assert site.refusal()[0] == self.MESSAGE

    @pytest.mark.parametrize("state", [HostState.GONE, HostState.ABSENT])
    def test_whose_hosts_know_of_no_program_are_not(self, site: Site, state: HostState) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.hosts = (HostState.ALIVE, state)
        assert site.outcome() == runs.FAILED

    @pytest.mark.parametrize("state", [NodeState.PREEMPTED, NodeState.DELETING])
    def test_whose_node_has_ended_are_not(self, site: Site, state: NodeState) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.node = state
        assert site.outcome() == runs.FAILED

    def test_that_were_silent_for_long_after_a_final_verdict_are_not(self, site: Site) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.memory.pass_time(7200)
        assert site.refusal()[0] == self.MESSAGE
        site.memory.pass_time(1)
        assert site.outcome() == runs.FAILED

    def test_of_an_attempt_that_cannot_be_read_count_for_a_while(self, site: Site) -> None:
        site.end(FAILED)
        site.memory.put(site.run.paths.attempt(1), b"{}")
        site.memory.pass_time(7200)
        assert site.refusal(writes=False)[0].startswith(
            f"Run 'r1' cannot be read: {site.run.paths.attempt(1)} "
        )
        site.memory.pass_time(1)
        assert site.outcome(writes=False) == runs.FAILED
