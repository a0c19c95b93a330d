"""Tests which TPUs count as used by nobody: what is not known of one is no reason to delete it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider, node, queued_resource
from tpuctl import clock
from tpuctl.errors import DeadlineError
from tpuctl.flows.nodes.reap import Disuse, Reaping, plan_reap, reap
from tpuctl.flows.nodes.reap import requests as reap_requests
from tpuctl.host.keeper import records
from tpuctl.nodes import HttpRequest, Node, NodeState, QueueState, owner_label

NOW = clock.parse("2026-01-01T02:00:00Z")
DISUSE = Disuse(lambda nodes: (), timedelta(hours=1))
WITH_END = {records.TTL: "3600s"}


def reasons(item: Node, disuse: Disuse | None = None) -> tuple[str, ...]:
    return plan_reap(MemoryProvider(item), "ada", NOW, disuse=disuse).reasons


@pytest.mark.parametrize("length", ["3600s", "7200s"])
def test_a_node_past_its_time_to_live_has_expired(length: str) -> None:
    (reason,) = reasons(node(metadata={records.TTL: length}))
    assert reason.startswith("expired 2026-01-01T0")


@pytest.mark.parametrize("metadata", [{}, {records.TTL: "7201s"}, {records.TTL: "soon"}])
def test_a_node_before_its_end_or_without_one_stays(metadata: dict[str, str]) -> None:
    assert reasons(node(metadata=metadata)) == ()


def test_a_node_of_unknown_age_has_not_expired() -> None:
    unknown = node(metadata=WITH_END, created="", created_at=0.0)
    assert reasons(unknown) == ()
    assert reasons(unknown, DISUSE) == ()


def test_a_node_of_unknown_age_ends_at_the_moment_that_was_set() -> None:
    moved = {**WITH_END, records.EXPIRES: "2026-01-01T01:59:59Z"}
    assert reasons(node(metadata=moved, created="", created_at=0.0)) == ("expired 2026-01-01T01:59:59Z",)


def test_an_old_node_without_a_run_is_owned_by_no_run() -> None:
    assert reasons(node(), DISUSE) == ("owned by no run",)
    assert reasons(node(created_at=NOW.timestamp() - 3599), DISUSE) == ()


LABELS = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("bob")}


class TestWhose:
    def test_only_those_of_an_owner_or_of_all_that_tpuctl_made(self) -> None:
        theirs = MemoryProvider(node(state=NodeState.PREEMPTED, labels=LABELS))
        assert plan_reap(theirs, "ada", NOW).allocations == ()
        assert plan_reap(theirs, None, NOW).reasons == ("n1 is its PREEMPTED",)
        foreign = MemoryProvider(node(state=NodeState.PREEMPTED, labels={}))
        assert plan_reap(foreign, None, NOW).allocations == ()

    def test_a_zone_chooses(self) -> None:
        lost = MemoryProvider(node(state=NodeState.PREEMPTED))
        assert len(plan_reap(lost, "ada", NOW, ZONE).allocations) == 1
        assert plan_reap(lost, "ada", NOW, "europe-west4-a").allocations == ()

    @pytest.mark.parametrize(
        ("state", "reason"),
        [
            (QueueState.FAILED, "its queued resource is its FAILED"),
            (QueueState.SUSPENDED, "its queued resource is its SUSPENDED"),
            (QueueState.WAITING, ""), (QueueState.ACTIVE, ""), (QueueState.DELETING, ""),
        ],
    )  # fmt: skip
    def test_a_queued_resource_that_never_works_again(self, state: QueueState, reason: str) -> None:
        provider = MemoryProvider()
        provider.queue["q1"] = queued_resource(state)
        assert plan_reap(provider, "ada", NOW, disuse=DISUSE).reasons == ((reason,) if reason else ())


class TestDisuse:
    @pytest.mark.parametrize(("age", "is_reaped"), [(3600, True), (3599, False)])
    def test_a_young_one_may_be_about_to_get_a_run(self, age: float, is_reaped: bool) -> None:
        assert bool(reasons(node(created_at=NOW.timestamp() - age), DISUSE)) is is_reaped

    @pytest.mark.parametrize("state", [NodeState.STOPPED, NodeState.CREATING, NodeState.REPAIRING])
    def test_one_that_is_not_ready_is_left(self, state: NodeState) -> None:
        assert reasons(node(state=state), DISUSE) == ()

    def test_one_that_a_run_uses_stays(self) -> None:
        used = Disuse(lambda nodes: [item.id.uid for item in nodes], timedelta(hours=1))
        assert reasons(node(), used) == ()


class TestDeletion:
    def test_what_was_planned_is_deleted(self) -> None:
        provider, lines = MemoryProvider(node(state=NodeState.PREEMPTED)), list[str]()
        plan = plan_reap(provider, "ada", NOW)
        assert reap_requests(provider, plan) == [HttpRequest("DeleteNode", "n1")]
        reap(provider, plan, lines.append)
        assert provider.nodes == {}
        assert lines

    def test_a_zone_that_did_not_answer_may_hold_more(self) -> None:
        provider = MemoryProvider(node(state=NodeState.PREEMPTED))
        provider.unreachable = ("europe-west4-a",)
        with pytest.raises(DeadlineError) as error:
            reap(provider, plan_reap(provider, "ada", NOW), lambda line: None)
        assert error.value.message == (
            "No answer from europe-west4-a: "
            "what has expired or failed there was not looked for, and may bill."
        )
        assert provider.nodes == {}

    def test_only_what_an_earlier_look_showed_too(self) -> None:
        """Who was asked agreed to that; a name may have been used again meanwhile."""
        lost = node(state=NodeState.PREEMPTED)
        earlier = plan_reap(MemoryProvider(lost), "ada", NOW)
        again = replace(lost, id=replace(lost.id, uid="uid-9"))
        assert plan_reap(MemoryProvider(lost), "ada", NOW).only(earlier) == earlier
        assert plan_reap(MemoryProvider(again), "ada", NOW).only(earlier) == Reaping((), ())
        provider = MemoryProvider()
        provider.queue["q1"] = queued_resource(QueueState.FAILED)
        before = plan_reap(provider, "ada", NOW)
        provider.queue["q1"] = queued_resource(QueueState.FAILED, created="2026-01-01T01:00:00Z")
        assert plan_reap(provider, "ada", NOW).only(before) == Reaping((), ())
