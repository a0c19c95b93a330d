"""Which node may be deleted with the end of its run, and what is said of one that stays."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.flows.nodes.memory_provider import ZONE, node
from tests.flows.runs.records import CREATED
from tpuctl import runs
from tpuctl.flows.nodes.inventory import Allocation, Inventory
from tpuctl.flows.runs.whole.machine import Removal, plan_removal
from tpuctl.flows.runs.whole.stage import node_name
from tpuctl.nodes import RESTART_LABEL, RUN_LABEL, NodeState, owner_label
from tpuctl.runs import Tpu, Verdict

OWN = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada")}
OF_RUN = {**OWN, RUN_LABEL: "r1"}


def removal(
    labels: Mapping[str, str] | None, state: NodeState = NodeState.READY, basis: str = runs.BY_WORKERS,
    users: tuple[str, ...] = (), unreachable: tuple[str, ...] = (), *, is_deleted: bool = True,
) -> Removal:  # fmt: skip
    """Return what is planned at the end of r1 on n1, which has these labels; None for a node that is gone."""
    listed = () if labels is None else (Allocation((node(state=state, labels=labels),)),)
    outcome = runs.LOST if basis == runs.BY_SILENCE else runs.FAILED
    verdict = Verdict("r1", outcome, 1, CREATED, "so", basis=basis, tpu=Tpu.of(node()))
    return plan_removal(
        Inventory(listed, unreachable), verdict, "ada", lambda _: users, is_deleted=is_deleted
    )


@pytest.mark.parametrize("labels", [OF_RUN, {**OWN, RESTART_LABEL: "r1"}])
@pytest.mark.parametrize("state", [NodeState.READY, NodeState.PREEMPTED])
def test_what_was_made_for_the_run_is_deleted(labels: Mapping[str, str], state: NodeState) -> None:
    planned = removal(labels, state)
    assert [item.name for item in planned.plan.allocations] == ["n1"]
    assert planned.kept == ""


@pytest.mark.parametrize(
    ("planned", "kept"),
    [
        (removal(OWN), "n1 was not made for this run. n1 goes on billing until 'tpuctl down n1'."),
        (removal({**OF_RUN, RUN_LABEL: "r2"}), "n1 was not made for this run."),
        (removal({**OF_RUN, "tpuctl-owner": owner_label("eve")}), "n1 was not made for this run."),
        (removal(OF_RUN, users=("other",)), "Run 'other' uses it. n1 goes on billing"),
        (removal(OF_RUN, basis=runs.BY_SILENCE), "Nobody knows whether the script still runs on n1. n1 goes"),
        (removal(OF_RUN, is_deleted=False), "n1 goes on billing until 'tpuctl down n1'."),
        (
            removal(OF_RUN, NodeState.PREEMPTED, is_deleted=False),
            "What is left of n1 is deleted by 'tpuctl down n1'.",
        ),
    ],
)
def test_anything_else_stays_and_is_named(planned: Removal, kept: str) -> None:
    assert planned.plan.allocations == ()
    assert planned.kept.startswith(kept)


def test_a_silent_zone_counts_only_where_the_node_may_be() -> None:
    assert removal(None, unreachable=(ZONE,)).plan.unreachable == (ZONE,)
    assert removal(None, unreachable=("us-central1-a",)).plan.unreachable == ()
    assert removal(None, unreachable=(ZONE,), is_deleted=False).plan.unreachable == ()
    assert removal(OF_RUN, unreachable=("us-central1-a",)).plan.unreachable == ()


@pytest.mark.parametrize(
    ("run", "name"),
    [("digits-1", "digits-1"), ("1st", "run-1st"), ("r1-", "run-r1"), ("9" * 63, "run-" + "9" * 59)],
)
def test_the_node_has_the_name_of_its_run_where_a_node_can(run: str, name: str) -> None:
    assert node_name(run) == name
