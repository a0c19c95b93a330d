"""Two looks at the TPUs: each change in a line."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.flows.nodes.memory_provider import ZONE, node, queued_resource
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.overview.node_runs import RunOnNode, Workload
from tpuctl.flows.overview.story import differences, snapshots
from tpuctl.flows.overview.views import Overview
from tpuctl.nodes import Maintenance, NodeState, QueueState

START = datetime(2026, 1, 1, tzinfo=UTC)
READY = Overview(Inventory((Allocation((node(),)),)), Workload())
EMPTY = Overview(Inventory(()), Workload())


def lines(before: Overview, after: Overview) -> list[str]:
    return [change.line for change in differences(snapshots(before, START), after, START)]


def test_a_node_comes_changes_and_goes() -> None:
    creating = Overview(Inventory((Allocation((node(state=NodeState.CREATING),)),)), Workload())
    assert lines(EMPTY, creating) == [f"n1 in {ZONE}: its CREATING"]
    assert lines(creating, READY) == [f"n1 in {ZONE}: its CREATING -> its READY"]
    assert lines(READY, READY) == []
    assert lines(READY, EMPTY) == [f"n1 in {ZONE}: its READY -> gone"]


def test_a_zone_that_does_not_answer_has_not_changed() -> None:
    assert lines(READY, Overview(Inventory((), (ZONE,)), Workload())) == []
    assert lines(READY, Overview(Inventory((), ("other",)), Workload())) == [
        f"n1 in {ZONE}: its READY -> gone"
    ]


def test_its_run_and_its_troubles_are_part_of_it() -> None:
    run = RunOnNode("r1", 1, "2026-01-01T00:00:00Z", "running")
    announced = {"uid-0": Maintenance("SCHEDULED", "PENDING", "", "", False)}
    after = Overview(READY.inventory, Workload({"uid-0": run}), announced)
    assert lines(READY, after) == [f"n1 in {ZONE}: its READY (r1 running; maintenance pending)"]
    assert lines(after, READY) == [f"n1 in {ZONE}: its READY"]
    assert lines(after, EMPTY) == [f"n1 in {ZONE}: its READY -> gone"]


def test_a_queued_resource_is_told_from_its_node() -> None:
    waiting = Overview(Inventory((Allocation((), queued_resource()),)), Workload())
    both = Overview(
        Inventory((Allocation((node(name="q1"),), queued_resource(QueueState.ACTIVE)),)), Workload()
    )
    assert lines(EMPTY, waiting) == [f"queued resource q1 in {ZONE}: its WAITING (waits for capacity)"]
    assert lines(waiting, both) == [
        f"q1 in {ZONE}: its READY", f"queued resource q1 in {ZONE}: its WAITING -> its ACTIVE",
    ]  # fmt: skip
