"""A run that has its verdict still uses its TPU while its other workers are being stopped."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import STATUS, TPU, pass_time, write_run
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.control import occupants as flow
from tpuctl.flows.runs.control.occupants import Occupant
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.evidence.words import NodeWord
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import Node, NodeId, NodeState
from tpuctl.worker.records import FINISHED, RUNNING, encode

NODE = cast("Node", SimpleNamespace(id=TPU.id, name=TPU.name))


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
