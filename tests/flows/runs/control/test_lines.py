"""Runs that wait in the line of a TPU, or replace what runs there, in any order, with kills at any moment.

The records are in a bucket in memory, the locks on this disk; submissions and supervisors take their steps in
an order that a seed gives. Never do two scripts run on a host, the line keeps its order, and it always moves.
"""

from __future__ import annotations

import fcntl
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, TPU
from tests.host.worker.host import SPEC
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import StateError
from tpuctl.flows.runs import stored_attempt
from tpuctl.flows.runs.control import cancel
from tpuctl.flows.runs.control import occupants as flow
from tpuctl.flows.runs.evidence.decision import HostState, HostWord, NodeWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host import gcs
from tpuctl.host.worker import control
from tpuctl.host.worker.control import Turn
from tpuctl.host.worker.records import (
    FINISHED,
    LOCK_FILE,
    PREPARING,
    QUEUED,
    RUNNING,
    STARTED,
    WorkerStatus,
    encode,
)
from tpuctl.host.worker.reporting import LAST_FILE
from tpuctl.nodes import Node, NodeId, NodeState
from tpuctl.parallel import fanout
from tpuctl.runs import Attempt, Run

HOSTS = 2
RUNS = 5
SEEDS = (*range(20), 28, 75, 103)
"""The last three meet a run that fails on one host while it goes on on the other, and is replaced then."""
HEARTBEAT = timedelta(seconds=10)
LINE = NodePaths.of(TPU.id).runs
NODE = cast("Node", SimpleNamespace(id=TPU.id, name=TPU.name))


class HostBucket:
    """The bucket as the program on a host sees it."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket

    def list(self, prefix: str, glob: str = "", most: int = 0) -> Iterator[gcs.Item]:
        for item in self._bucket.objects(prefix):
            age = (self._bucket.time - self._bucket.time_of(item.name)).total_seconds()
            yield gcs.Item(item.name, item.generation, age)

    def read(self, name: str, most: int) -> tuple[int, bytes]:
        data = self._bucket.get(name)
        return (0, b"") if data is None else (1, data)


class Supervisor:
    """The program of one run on one host: in line, then ready, then with its script, then ended."""

    def __init__(self, world: World, run: str, host: int, *, waits: bool) -> None:
        self.run, self.host = run, host
        self.world = world
        folder = world.folder / f"{host}" / run / "1"
        folder.mkdir(parents=True)
        self.lock: BinaryIO | None = (folder / LOCK_FILE).open("wb")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        (folder / STARTED).touch()
        spec = replace(SPEC, run=run, worker=host, participants=(0, 1), line=LINE if waits else "")
        self.folder = folder
        bucket = cast("gcs.Bucket", HostBucket(world.bucket))
        self.turn = Turn(bucket, spec, str(folder)) if waits else None
        self.state = QUEUED if waits else PREPARING
        self.has_script = False
        self.write()

    def write(self, **changes: object) -> None:
        state = FINISHED if changes else self.state
        said = WorkerStatus(self.host, 1, TPU.uid, state, CREATED, "" if state == QUEUED else CREATED)
        status = replace(said, **changes)  # type: ignore[arg-type]
        self.world.bucket.put(f"runs/{self.run}/attempts/1/workers/{self.host}/status.json", encode(status))
        (self.folder / LAST_FILE).write_bytes(encode(status))
        self.written = self.world.bucket.time

    def step(self) -> None:
        if self.lock is None:
            return
        peers = self.world.supervisors_of(self.run)
        if self.is_asked or any(peer.state == "dead" or peer.has_failed for peer in peers):
            if self.world.random.random() < 0.3:  # else it saves
                self.end(failed=False)
        elif self.state == QUEUED and self.turn and self.turn.look() == 0:
            self.turn.leave(self.leave_line)
        elif self.state == PREPARING and len(peers) == HOSTS and all(each.is_ready for each in peers):
            if not control.runs_beside(str(self.folder)):
                self.start()
        elif self.state == RUNNING and self.world.random.random() < 0.2:
            self.end(failed=self.world.random.random() < 0.5)
        if self.lock:
            self.write()

    def leave_line(self) -> None:
        self.state = PREPARING
        self.write()

    has_failed = False

    @property
    def is_ready(self) -> bool:
        return self.state in (PREPARING, RUNNING, FINISHED)

    @property
    def is_asked(self) -> bool:
        return self.world.bucket.get(f"runs/{self.run}/stop.json") is not None

    def start(self) -> None:
        """Start the script, once what nobody watches any more has been ended."""
        for other in self.world.supervisors:
            if other.host == self.host and other.lock is None:
                other.has_script = False
        assert not [
            other.run for other in self.world.supervisors if other.host == self.host and other.has_script
        ], f"beside {self.run}"
        self.state, self.has_script = RUNNING, True
        self.world.starts[self.host].append(self.run)

    def end(self, *, failed: bool) -> None:
        """End the script, say the last word, and let the lock go, which the next one waits for."""
        self.has_script, self.has_failed = False, failed
        self.state = FINISHED
        by = "ada@example.com" if self.is_asked else ""
        if not failed and not by and self.world.is_broken(self.run):
            self.write(exit_code=143, peer=1 - self.host)
        else:
            self.write(exit_code=int(failed), stopped_by=by)
        self.release()

    def kill(self) -> None:
        """Kill it with its guard: nobody says its last word, and its script goes on."""
        if self.lock:
            self.state = "dead"
            self.release()

    def release(self) -> None:
        if self.lock:
            self.lock.close()
            self.lock = None


class Machine(Witnesses):
    """A node that is READY; its hosts know who lives there."""

    def __init__(self, world: World) -> None:
        super().__init__(MemoryProvider())
        self._world = world

    def node(self, bucket: Bucket, node: NodeId) -> NodeWord:
        return NodeWord(NodeState.READY)

    def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
        words = dict.fromkeys(workers, HostWord(HostState.ABSENT))
        for each in self._world.supervisors_of(run):
            words[each.host] = HostWord(HostState.ALIVE if each.lock else HostState.GONE)
        return words


class Submission:
    """One command that is on its way: it queues, or replaces what runs."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.run = world, f"r{number}"
        self.queues = world.random.random() < 0.6
        self.hosts = list(range(HOSTS))
        world.random.shuffle(self.hosts)
        self.is_recorded = self.is_over = False

    def step(self) -> None:
        if self.is_over:
            return
        if self.is_recorded:
            host = self.hosts.pop()
            self.world.supervisors.append(Supervisor(self.world, self.run, host, waits=self.queues))
            self.is_over = not self.hosts
        elif self.queues or self.may_start():
            self.record()

    def may_start(self) -> bool:
        """Ask what runs to stop, and return whether the TPU is free by now."""
        bucket = cast("Bucket", self.world.bucket)
        busy = flow.occupants(bucket, self.world.machine, NODE, lambda text: None)
        try:
            flow.check_replaceable(bucket, NODE, busy, self.run)
        except StateError:
            self.is_over = True  # others wait in line
            return False
        for occupant in busy:
            cancel.ask(StoredRun(bucket, occupant.run), "ada@example.com", 30)
        return not busy

    def record(self) -> None:
        record(self.world, self.run)
        self.is_recorded = True
        if self.queues:
            self.world.line.append(self.run)


def record(world: World, name: str) -> None:
    """Write a run and its attempt on all hosts."""
    run = StoredRun(cast("Bucket", world.bucket), name)
    run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
    run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=tuple(range(HOSTS))))


class World:
    """A TPU of two hosts, its line, and who submits to it, one after another, or in the midst of another."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.bucket = MemoryBucket()
        self.machine = Machine(self)
        self.supervisors: list[Supervisor] = []
        self.submissions: list[Submission] = []
        self.line: list[str] = []
        """Runs in the order in which the bucket took them."""
        self.starts: list[list[str]] = [[] for _ in range(HOSTS)]
        """Of each host."""
        self.seconds = 0.0

    def supervisors_of(self, run: str) -> list[Supervisor]:
        return [each for each in self.supervisors if each.run == run]

    def is_broken(self, run: str) -> bool:
        return any(each.has_failed or each.state == "dead" for each in self.supervisors_of(run))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and supervisors that live write their heartbeats."""
        self.seconds += seconds
        self.bucket.pass_time(seconds)
        for each in self.supervisors:
            if each.lock and self.bucket.time - each.written > HEARTBEAT:
                each.write()

    def act(self) -> None:
        self.pass_time(self.random.choice([0, 0, 1, 5]))
        match self.random.randrange(12):
            case 0 if len(self.submissions) < RUNS and all(each.is_over for each in self.submissions):
                self.submissions.append(Submission(self, len(self.submissions)))
            case 1 if self.supervisors and self.random.random() < 0.15:
                self.random.choice(self.supervisors).kill()
            case 2 if self.submissions and self.random.random() < 0.05:
                self.submissions[-1].is_over = True  # kill -9 of the command
            case 3 | 4 | 5 if self.submissions:
                self.submissions[-1].step()
            case _ if self.supervisors:
                self.random.choice(self.supervisors).step()
            case _:
                pass

    def finish(self) -> None:
        """Let all commands and supervisors end; those that wait for a host which nobody starts give up."""
        self._let_act(self.submissions, self.supervisors)
        for each in self.supervisors:
            if each.lock and len(self.supervisors_of(each.run)) < HOSTS:
                each.end(failed=False)  # its neighbour has been silent for 15 minutes
        self._let_act(self.supervisors)

    def _let_act(self, *actors: Sequence[Submission | Supervisor]) -> None:
        for _ in range(100):
            if not any(each.lock for each in self.supervisors) and all(s.is_over for s in self.submissions):
                return
            self.pass_time(10)
            for actor in (actor for group in actors for actor in group):
                actor.step()


@pytest.fixture(autouse=True)
def same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads would make another order of the same seed."""
    for module in (stored_attempt, flow):
        monkeypatch.setattr(module, "fanout", lambda work, items, width=0: fanout(work, items, width=1))


def play(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world after its end; raises AssertionError where two scripts meet."""
    world = World(seed, folder)
    real = time.time
    clock = SimpleNamespace(
        monotonic=lambda: world.seconds, time=lambda: real() + world.seconds, strptime=time.strptime
    )
    monkeypatch.setattr(control, "time", clock)
    try:
        for _ in range(250):
            world.act()
        world.finish()
        assert [each.run for each in world.supervisors if each.lock] == [], "somebody waits for ever"
    finally:
        for each in world.supervisors:
            each.release()
    return world


def test_no_two_scripts_run_on_a_host_and_the_line_moves_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, stops = set[int](), 0
    for seed in SEEDS:
        world = play(seed, tmp_path / str(seed), monkeypatch)
        for starts in world.starts:
            queued = [run for run in starts if run in world.line]
            assert queued == [run for run in world.line if run in queued], f"the order of seed {seed}"
            assert len(set(starts)) == len(starts)
        lengths.add(len(world.line))
        stops += any(name.endswith("stop.json") for name, _ in world.bucket.history)
    assert {1, 2, 3} <= lengths, "lines are met"
    assert stops, "and replacements"


def test_lines_of_two_buckets_share_a_tpu_and_never_wait_for_each_other(tmp_path: Path) -> None:
    """They have no common order: each may come first on another host."""
    for seed in range(5):
        worlds = [World(seed, tmp_path / f"{seed}") for _ in range(2)]
        first, second = worlds
        second.supervisors, second.starts, second.random = first.supervisors, first.starts, first.random
        starts = [
            (world, f"{letter}{number}")
            for world, letter in zip(worlds, "ab", strict=True)
            for number in range(3)
        ]
        for world, run in starts:
            record(world, run)
        left = [(world, run, host) for world, run in starts for host in range(HOSTS)]
        first.random.shuffle(left)
        for _ in range(1000):
            if not left and not any(each.lock for each in first.supervisors):
                break
            if left and first.random.random() < 0.2:
                world, run, host = left.pop()
                first.supervisors.append(Supervisor(world, run, host, waits=True))
            elif first.supervisors:
                first.random.choice(first.supervisors).step()
        waiting = [(each.run, each.host, each.state) for each in first.supervisors if each.lock]
        assert (left, waiting) == ([], []), f"seed {seed}"
