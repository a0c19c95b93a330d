"""A run that has its verdict still uses its TPU while its other workers are being stopped."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU, pass_time, write_run
from tpuctl import clock, runs
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConflictError, StateError
from tpuctl.flows.runs.control import occupants as flow
from tpuctl.flows.runs.control.occupants import Occupant
from tpuctl.flows.runs.evidence.decision import NodeWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, RUNNING, encode
from tpuctl.nodes import Node, NodeId, NodeState
from tpuctl.runs import Verdict

NODE = cast("Node", SimpleNamespace(id=TPU.id, name=TPU.name, slices=0))


class Ready(Witnesses):
    """The provider says that the node is READY."""

    def node(self, bucket: Bucket, node: NodeId) -> NodeWord:
        return NodeWord(NodeState.READY)


@pytest.fixture
def failed(bucket: Bucket) -> StoredRun:
    """A run of which worker 0 has failed; nobody has stopped the scripts of the others yet."""
    run = write_run(bucket)
    for worker in range(4):
        write(run, worker, FINISHED if worker == 0 else RUNNING)
    verdict = settle(run, Ready(MemoryProvider())).verdict
    assert verdict
    assert verdict.outcome == runs.FAILED
    return run


def write(run: StoredRun, worker: int, state: str) -> None:
    code = {FINISHED: 1 if worker == 0 else 143}.get(state)
    status = replace(STATUS, worker=worker, state=state, exit_code=code, peer=0 if worker and code else None)
    run.bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")


def occupants(bucket: Bucket) -> list[Occupant]:
    return flow.occupants(bucket, Witnesses(MemoryProvider()), NODE, lambda text: pytest.fail(text))


def test_its_chips_are_not_free_before_its_last_worker_has_ended(bucket: Bucket, failed: StoredRun) -> None:
    assert [(each.run, each.is_ending) for each in occupants(bucket)] == [("r1", True)]
    for worker in (1, 2, 3):
        write(failed, worker, FINISHED)
    assert occupants(bucket) == []


def test_a_worker_that_is_silent_is_not_waited_for(bucket: Bucket, failed: StoredRun) -> None:
    pass_time(bucket, flow.BEATING + 5)
    assert occupants(bucket) == []


def test_one_that_is_started_next_waits_for_it(bucket: Bucket, failed: StoredRun) -> None:
    busy, texts = occupants(bucket), list[str]()

    def sleep(_: float) -> None:
        write(failed, len(texts), FINISHED)
        texts.append("a pause")

    assert flow.await_endings(bucket, NODE, busy, texts.append, sleep=sleep) == []
    assert texts[0] == "waiting until run 'r1' has ended on every host"
    assert len(texts) == 4


def test_what_does_not_end_stays_busy(bucket: Bucket, failed: StoredRun) -> None:
    busy = occupants(bucket)
    other = replace(busy[0], run="r0", state=RUNNING)
    left = flow.await_endings(bucket, NODE, [other, *busy], lambda text: None, seconds=0)
    assert left == [other, *busy]


class TestMemory:
    """Occupants by records in a bucket in memory, with a clock of its own."""

    @pytest.fixture
    def memory(self) -> MemoryBucket:
        return MemoryBucket()

    def end(self, memory: MemoryBucket, age: float, **fields: object) -> StoredRun:
        """Write a run that failed so many seconds ago, of which workers 1 to 3 go on."""
        run = write_run(cast("Bucket", memory))
        verdict = Verdict("r1", runs.FAILED, 1, clock.iso(memory.now()), "so", basis=runs.BY_WORKERS, tpu=TPU)
        run.end(msgspec.structs.replace(verdict, **fields))
        memory.pass_time(age)
        for worker in (1, 2, 3):
            status = replace(STATUS, worker=worker, state=RUNNING)
            memory.put(run.paths.status(1, worker), encode(status))
        return run

    def look(self, memory: MemoryBucket, node: Node = NODE) -> list[Occupant]:
        return flow.occupants(
            cast("Bucket", memory), Ready(MemoryProvider()), node, lambda text: pytest.fail(text)
        )

    @pytest.mark.parametrize(("age", "is_ending"), [(0, True), (120, True), (121, False)])
    def test_a_run_that_ended_two_minutes_ago_has_left(
        self, memory: MemoryBucket, age: float, is_ending: bool
    ) -> None:
        self.end(memory, age)
        assert [each.state for each in self.look(memory)] == ["ending"] * is_ending

    @pytest.mark.parametrize(("silence", "is_ending"), [(59, True), (60, False)])
    def test_a_worker_that_was_silent_for_a_minute_has_ended(
        self, memory: MemoryBucket, silence: float, is_ending: bool
    ) -> None:
        self.end(memory, 0)
        memory.pass_time(silence)
        assert bool(self.look(memory)) is is_ending

    def test_runs_that_have_ended_before_cost_no_request(self, memory: MemoryBucket) -> None:
        counts, bucket = [], cast("Bucket", memory)
        for number in range(1, 41):
            run = write_run(bucket, f"r{number}")
            run.end(Verdict(run.name, runs.FAILED, 1, CREATED, "so", basis=runs.BY_WORKERS, tpu=TPU))
            if number in (20, 40):
                memory.pass_time(200)
                counts.append(memory.requests(lambda: self.look(memory)))
        assert counts == [2, 2]
        write_run(bucket, "works")
        assert [each.run for each in self.look(memory)] == ["works"]

    def test_a_run_on_a_node_of_the_name_before_uses_nothing(self, memory: MemoryBucket) -> None:
        run = write_run(cast("Bucket", memory))
        later = msgspec.structs.replace(TPU, uid="8")
        run.announce(msgspec.structs.replace(ATTEMPT, tpu=later))
        node = cast("Node", SimpleNamespace(id=later.id, name=later.name, slices=0))
        assert self.look(memory, node) == []
        (occupant,) = self.look(memory)
        assert occupant == Occupant("r1", "ada@laptop", "2026-01-01T12:00:00Z", "starting")

    def test_one_that_cannot_be_read_is_said_and_not_counted(self, memory: MemoryBucket) -> None:
        run = write_run(cast("Bucket", memory))
        memory.put(run.paths.verdict, b"{")
        warnings: list[str] = []
        bucket, witnesses = cast("Bucket", memory), Ready(MemoryProvider())
        assert flow.occupants(bucket, witnesses, NODE, warnings.append) == []
        assert warnings[0].startswith("Whether run 'r1' uses the TPU is unknown: runs/r1/verdict.json ")

    def test_one_that_was_never_started_is_none(self, memory: MemoryBucket) -> None:
        run = StoredRun(cast("Bucket", memory), "r1")
        run.announce(ATTEMPT)
        assert self.look(memory) == []


def busy(*states: str) -> list[Occupant]:
    names = [f"r{number}" for number in range(1, len(states) + 1)]
    return [Occupant(name, "ada", "", state) for name, state in zip(names, states, strict=True)]


@pytest.mark.parametrize(
    ("states", "place"),
    [
        (["running"], "(running, 5m ago)"), (["running", "queued"], "(running, 5m ago), and 1 more waits"),
        (["running", "queued", "queued"], "(running, 5m ago), and 2 more wait"),
    ],
)  # fmt: skip
def test_a_submission_to_a_busy_node_says_who_uses_it_and_what_can_be_done(
    states: list[str], place: str
) -> None:
    error = flow.busy_error(
        NODE, busy(*states), ["5m ago"] * len(states), ("submit", "job.py", "--name", "r9", "--", "3")
    )
    assert error.message == f"n1 is busy with run 'r1' of ada {place}."
    assert error.hint == (
        "Wait in line: tpuctl submit job.py --name r9 --queue -- 3\n"
        "Stop it, and start: tpuctl submit job.py --name r9 --replace -- 3\n"
        "Wait first: tpuctl wait r1"
    )
    assert error.facts["busy"] == [f"r{number}" for number in range(1, len(states) + 1)]


def test_a_run_that_takes_the_place_of_others_needs_a_free_name_and_an_empty_line() -> None:
    memory = MemoryBucket()
    bucket = cast("Bucket", memory)
    flow.check_replaceable(bucket, NODE, busy("running", "ending"), "r9")
    with pytest.raises(StateError) as waiting:
        flow.check_replaceable(bucket, NODE, busy("running", "queued", "queued"), "r9")
    assert waiting.value.message == "In the line of n1 wait: r2, r3. They would start in its place."
    assert waiting.value.hint == "Wait behind them (--queue), or take one out of the line: tpuctl cancel r2"
    memory.put("runs/r9/run.json", b"{}")
    with pytest.raises(ConflictError) as taken:
        flow.check_replaceable(bucket, NODE, busy("running"), "r9")
    assert (taken.value.message, taken.value.hint) == (
        "There is a run 'r9' already.", "Choose another --name.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "waits", "is_ending"),
    [("queued", True, False), ("ending", False, True), ("running", False, False)],
)
def test_an_occupant_waits_or_ends_by_its_state(state: str, waits: bool, is_ending: bool) -> None:
    (occupant,) = busy(state)
    assert (occupant.waits, occupant.is_ending) == (waits, is_ending)
