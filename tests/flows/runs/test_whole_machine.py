"""Which node may be deleted with the end of its run, and what is said of one that stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, MemorySsh, node
from tests.flows.runs.records import CREATED
from tpuctl import runs
from tpuctl.errors import StockoutError
from tpuctl.flows.nodes.down import DownPlan
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.placement.rounds import Search
from tpuctl.flows.nodes.plan import UpPlan, plan_up
from tpuctl.flows.runs.whole import (
    NOTHING_TO_DELETE,
    Removal,
    acquire,
    deletion_requests,
    node_name,
    node_of,
    plan_removal,
)
from tpuctl.host.keeper.records import BUCKET
from tpuctl.nodes import RESTART_LABEL, RUN_LABEL, HttpRequest, NodeRequest, NodeState, SshKey, owner_label
from tpuctl.runs import Tpu, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


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
        Inventory(listed, unreachable), verdict, "ada", lambda _: users, bucket="b", is_deleted=is_deleted
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


class TestAcquire:
    """Of several types the first one with capacity is used."""

    def planned(self, provider: MemoryProvider, *types: str) -> list[UpPlan]:
        key = SshKey("ada", "ssh-ed25519 AAAA")
        return [
            plan_up(
                provider, key,
                UpOptions(name, f"n-{name}", "ada", framework="jax"),
                Search((ZONE,)),
            )
            for name in types
        ]  # fmt: skip

    def acquired(self, provider: MemoryProvider, plans: list[UpPlan]) -> tuple[list[str], list[str]]:
        """Return the names of the nodes, and what was said of those without capacity."""
        reports: list[str] = []
        allocation = acquire(provider, cast("Ssh", MemorySsh()), plans, reports.append)
        return [item.name for item in allocation.nodes], [line for line in reports if line.startswith("No ")]

    def scarce(self, *names: str) -> MemoryProvider:
        """Return a provider without capacity for the nodes of these names."""
        provider = MemoryProvider()
        add = provider.add

        def create(request: NodeRequest) -> None:
            if request.id.name in names:
                raise StockoutError(f"No capacity for {request.id.name}.")
            add(request)

        provider.on_create = create
        return provider

    @pytest.mark.parametrize(
        ("scarce", "name", "said"),
        [
            ((), "n-v3-8", []),
            (("n-v3-8",), "n-v2-8", ["No capacity for n-v3-8."]),
        ],
    )
    def test_the_first_with_capacity_is_used(
        self, scarce: tuple[str, ...], name: str, said: list[str]
    ) -> None:
        provider = self.scarce(*scarce)
        plans = self.planned(provider, "v3-8", "v2-8")
        assert self.acquired(provider, plans) == ([name], said)
        assert [*provider.nodes] == [name], "no other one is made"

    def test_where_none_has_any_the_last_says_so(self) -> None:
        provider = self.scarce("n-v3-8", "n-v2-8")
        with pytest.raises(StockoutError, match="No capacity for n-v2-8"):
            self.acquired(provider, self.planned(provider, "v3-8", "v2-8"))

    def test_the_node_of_a_plan_is_what_exists_or_what_will(self) -> None:
        existing = node("n-v3-8")
        (plan,) = self.planned(MemoryProvider(existing), "v3-8")
        assert node_of(plan) == existing
        (plan,) = self.planned(MemoryProvider(), "v3-8")
        future = node_of(plan)
        assert (future.name, future.accelerator, future.state, len(future.addresses)) == (
            "n-v3-8", "v3-8", NodeState.CREATING, 1
        )  # fmt: skip

    def test_what_a_plan_creates_is_what_its_dry_run_deletes(self) -> None:
        provider = MemoryProvider()
        (plan,) = self.planned(provider, "v3-8")
        assert deletion_requests(provider, plan) == [HttpRequest("DeleteNode", "n-v3-8")]


def test_what_was_made_for_a_run_of_another_bucket_stays() -> None:
    elsewhere = Allocation((node(labels=OF_RUN, metadata={BUCKET: "other"}),))
    verdict = Verdict("r1", runs.FAILED, 1, CREATED, "so", basis=runs.BY_WORKERS)
    planned = plan_removal(Inventory((elsewhere,)), verdict, "ada", lambda _: (), bucket="b", is_deleted=True)
    assert planned == Removal(DownPlan(()))


def test_of_several_nodes_that_was_not_made_for_the_run_only_its_own_is_named() -> None:
    other = node("n2", labels=OWN, id=replace(node().id, name="n2", uid="uid-2"))
    listed = Inventory((Allocation((other,)), Allocation((node(labels=OWN),))))
    verdict = Verdict("r1", runs.FAILED, 1, CREATED, "so", basis=runs.BY_WORKERS, tpu=Tpu.of(node()))
    planned = plan_removal(listed, verdict, "ada", lambda _: (), bucket="b", is_deleted=True)
    assert planned == Removal(
        NOTHING_TO_DELETE, "n1 was not made for this run. n1 goes on billing until 'tpuctl down n1'."
    )
