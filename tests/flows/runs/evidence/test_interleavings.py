"""Up to five actors on one run in any order: it always ends, and worse evidence overrules no better.

A submit and its twin, the workers, the machine, two readers, and who cancels the run: the steps of each are
cut by those of all others. Each request to the bucket is a moment at which somebody else may act.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED
from tpuctl import clock, runs
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConflictError, TpuctlError
from tpuctl.flows.runs import stored_attempt
from tpuctl.flows.runs.control import cancel
from tpuctl.flows.runs.control.cancel import plan_cancel
from tpuctl.flows.runs.evidence.decision import LOST_AFTER, HostState, HostWord, NodeWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, PREPARING, RUNNING, WorkerStatus, encode, read_stop
from tpuctl.nodes import NodeId, NodeState
from tpuctl.parallel import fanout
from tpuctl.runs import Attempt, Run, Verdict, decode

RECORD = Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
WORKERS = 3
SEEDS = 100
ACCOUNTS = ("ada@example.com", "bob@example.com")
STOP = "runs/r1/stop.json"
ENDS = (NodeState.PREEMPTED, NodeState.GONE, NodeState.REPAIRING)


class Worker:
    """One supervisor and its script, as the bucket and its host show them."""

    def __init__(self, bucket: MemoryBucket, number: int, choice: random.Random) -> None:
        self.number = number
        self._bucket = bucket
        self._random = choice
        self._status = WorkerStatus(number, 1, "7", PREPARING, CREATED)
        self.is_alive = True
        self.is_cut = False
        """Whether nothing that it writes arrives."""
        self.silent_since = bucket.time
        self.asked_by = ""
        """Who asks to stop the run, once this worker has heard of it."""

    def step(self) -> None:
        """Write a heartbeat, or sometimes the last word: soon where somebody asks to stop the run."""
        if not self.is_alive:
            return
        if not self.is_cut and self._random.random() < 0.5:
            self._hear()
        if self.asked_by:
            if self._random.random() < 0.5:
                self.end(exit_code=self._random.choice([0, 143]), stopped_by=self.asked_by)
            else:
                self.write()  # it saves
        elif self._status.state == PREPARING or self._random.random() < 0.95:
            self.write(state=RUNNING)
        else:
            self.end(exit_code=self._random.choice([0, 0, 0, 0, 3]))

    def _hear(self) -> None:
        """Read whether somebody asks to stop the run."""
        data = self._bucket.get(STOP)
        self.asked_by = self.asked_by or (read_stop(data, "r1").by if data else "")

    def end(self, **changes: object) -> None:
        """Write the last word; what cannot be written stays on the host's disk."""
        self.write(state=FINISHED, finished=CREATED, **changes)
        self.is_alive = False

    def write(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]
        if not self.is_cut:
            self._bucket.put(f"runs/r1/attempts/1/workers/{self.number}/status.json", encode(self._status))
            self.silent_since = self._bucket.time

    @property
    def host_word(self) -> HostWord:
        if self.is_cut:
            return HostWord(HostState.NO_ANSWER, "it did not answer in time")
        if self.is_alive:
            return HostWord(HostState.ALIVE)
        return HostWord(HostState.GONE, last=self._status)

    @property
    def succeeded(self) -> bool:
        ended = self._status.state == FINISHED and self._status.exit_code == 0
        return ended and not self._status.stopped and not self._status.stopped_by


class Machine(Witnesses):
    """The node and its hosts, which may end at any moment, by a preemption or piece by piece."""

    def __init__(self, workers: Sequence[Worker], choice: random.Random) -> None:
        super().__init__(MemoryProvider())
        self.workers = workers
        self.state = NodeState.READY
        self._random = choice
        self.was_touched = False

    def step(self) -> None:
        worker = self._random.choice(self.workers)
        match self._random.randrange(12):
            case 0:
                worker.is_cut = True
            case 1 | 2 | 3:
                worker.is_cut = False
            case 4:
                self.was_touched = True
                worker.is_alive = False  # kill -9
            case 5:
                self.was_touched = True
                if worker.is_alive:
                    worker.end(exit_code=143, stopped="SIGTERM")
            case 6:
                self._stop_all(self._random.choice(ENDS))
            case _:
                pass

    def _stop_all(self, state: NodeState) -> None:
        if self.state is not NodeState.READY:
            return
        self.was_touched = True
        for worker in self.workers:
            if worker.is_alive and self._random.random() < 0.7:
                worker.end(exit_code=143, stopped="SIGTERM")
            worker.is_alive = False
        self.state = state

    def node(self, bucket: Bucket, node: NodeId) -> NodeWord:
        return NodeWord(NodeState.UNKNOWN if self._random.random() < 0.1 else self.state)

    def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
        if self.state is not NodeState.READY:
            return {worker: HostWord(HostState.NO_ANSWER) for worker in workers}
        return {worker: self.workers[worker].host_word for worker in workers}


class World:
    """One run, its actors, and what must hold at each of their steps."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bucket = MemoryBucket()
        self.workers = [Worker(self.bucket, number, self.random) for number in range(WORKERS)]
        self.machine = Machine(self.workers, self.random)
        self.nesting = 0
        self.kept = StoredRun(cast("Bucket", self.bucket), "r1")
        self.submit("first")
        self.bucket.meanwhile = self.others_act

    def submit(self, token: str) -> bool:
        """Write the records of a run, as a submit does; return whether the name is its own."""
        run = StoredRun(cast("Bucket", self.bucket), "r1")
        try:
            run.create(msgspec.structs.replace(RECORD, token=token))
        except ConflictError:
            return False
        workers = tuple(range(WORKERS))
        run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=workers, token=token))
        return True

    def others_act(self) -> None:
        """Between two requests of one actor: one of the others acts, sometimes."""
        if self.nesting < 2 and self.random.random() < 0.3:
            self.nesting += 1
            self.act()
            self.nesting -= 1

    def act(self) -> None:
        self.bucket.pass_time(self.random.choice([0, 1, 10, 30, 60]))
        match self.random.randrange(20):
            case 0 | 6 | 7:
                self.machine.step()
            case 1:
                assert not self.submit("second"), "equal requests are two submits"
            case 2 | 3 | 4:
                self.look()
            case 5:
                self.cancel()
            case _:
                self.random.choice(self.workers).step()

    def cancel(self) -> None:
        """Somebody asks to stop the run, sometimes; one that has ended is left as it is."""
        if self.random.random() < 0.85:
            return
        bucket = cast("Bucket", self.bucket)
        try:
            plan = plan_cancel(bucket, self.machine, "r1", self.random.choice(ACCOUNTS), grace=30)
            if not plan.verdict:
                cancel.ask(plan.run, plan.by, plan.grace)
        except TpuctlError:
            pass  # others were always first

    def look(self) -> RunState:
        """A reader looks, for the first time or again, and what it wrote is checked."""
        run = self.random.choice([self.kept, StoredRun(cast("Bucket", self.bucket), "r1")])
        before, is_asked = self.verdicts(), self.bucket.get(STOP) is not None
        try:
            state = settle(run, self.machine)
        except TpuctlError:
            return RunState(None)  # others were always first
        for verdict in self.verdicts()[len(before) :]:
            if verdict.outcome == runs.LOST and verdict.basis == runs.BY_SILENCE:
                silence = max(
                    (self.bucket.time - self.workers[worker].silent_since).total_seconds()
                    for worker in verdict.silent
                )
                assert silence > LOST_AFTER
            if is_asked:
                assert verdict.outcome not in (runs.PREEMPTED, runs.MAINTENANCE), "nobody starts it again"
            if verdict.stopped_by:
                assert verdict.stopped_by in ACCOUNTS
                assert verdict.outcome == runs.STOPPED
        return state

    def verdicts(self) -> list[Verdict]:
        written = [data for name, data in self.bucket.history if name == "runs/r1/verdict.json"]
        return [decode(data, Verdict, "verdict.json") for data in written]

    def finish(self) -> RunState:
        """Everybody who lives ends his work, time passes, and somebody looks."""
        for worker in self.workers:
            worker.is_cut = worker.is_cut and self.random.random() < 0.5
            if worker.is_alive:
                worker.end(exit_code=0)
        self.nesting = 9  # nobody else acts any more
        for _ in range(20):
            self.bucket.pass_time(LOST_AFTER / 5)
            state = self.look()
        return state


@pytest.fixture(autouse=True)
def wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop's clock may show any time: nobody looks at it."""
    monkeypatch.setattr(clock, "now", lambda: pytest.fail("the clock of a laptop was asked"))


@pytest.fixture(autouse=True)
def same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads would make another order of the same seed."""
    monkeypatch.setattr(stored_attempt, "fanout", partial(fanout, width=1))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_run_always_ends_and_no_worse_evidence_overrules_better(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        world.act()
    state = world.finish()
    assert state.verdict, "a run without an end"
    verdicts = world.verdicts()
    for former, latter in pairwise(verdicts):
        assert former.rank < runs.RANKS[runs.BY_WORKERS], "what the workers said is final"
        assert latter.rank > former.rank or former.silent, "only a later word of a silent worker refutes"
    requests = [data for name, data in world.bucket.history if name == STOP]
    assert len(requests) <= 1, "of two requests the first counts"
    if state.verdict.stopped_by:
        assert state.verdict.stopped_by == read_stop(requests[0], "r1").by
    if not world.machine.was_touched and all(worker.succeeded for worker in world.workers):
        cut = any(worker.is_cut for worker in world.workers)
        assert state.verdict.outcome == runs.SUCCEEDED or cut
    if state.verdict.outcome == runs.SUCCEEDED:
        assert all(worker.succeeded for worker in world.workers)


def test_the_seeds_meet_every_outcome() -> None:
    outcomes = set()
    for seed in range(SEEDS):
        world = World(seed)
        for _ in range(60):
            world.act()
        verdict = world.finish().verdict
        outcomes.add(verdict.outcome if verdict else "")
    assert outcomes == {
        runs.SUCCEEDED, runs.FAILED, runs.STOPPED, runs.PREEMPTED, runs.LOST, runs.MAINTENANCE,
    }  # fmt: skip
