"""Tests deleting nodes and queued resources of any provider.

Tests which TPUs count as used by nobody: what is not known of one is no reason to delete it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.flows.nodes.memory_provider import CREATED, ZONE, MemoryProvider, node, queued_resource
from tests.flows.passing_time import PassingTime
from tpuctl import clock
from tpuctl.cloud.provider import Operation
from tpuctl.errors import ConfigError, DeadlineError, NotFoundError, StateError, UsageError
from tpuctl.flows.nodes.down import DownPlan, down, plan_down, requests
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.reap import Disuse, Reaping, plan_reap, reap
from tpuctl.flows.nodes.reap import requests as reap_requests
from tpuctl.host.keeper import records
from tpuctl.nodes import (
    Change,
    DeleteNode,
    DeleteQueuedResource,
    HttpRequest,
    Node,
    NodeId,
    NodeState,
    QueueState,
    owner_label,
)


def names_of(plan: DownPlan) -> list[str]:
    return [allocation.name for allocation in plan.allocations]


def of(*nodes: Node) -> DownPlan:
    """Return the plan to delete these nodes."""
    return DownPlan(tuple(Allocation((planned,)) for planned in nodes))


class TestPlan:
    def test_without_names_the_users_only_one_is_meant(self) -> None:
        provider = MemoryProvider(node("n1"), node("n2", labels={}))
        assert names_of(plan_down(provider, (), "ada")) == ["n1"]
        assert names_of(plan_down(provider, (), "bob")) == []

    def test_of_several_one_has_to_be_named_or_all_are_meant(self) -> None:
        provider = MemoryProvider(node("n1"), node("n2", labels={}), node("n3", NodeState.PREEMPTED))
        with pytest.raises(StateError, match=r"^You have 2 TPUs: n1, n3\.$") as several:
            plan_down(provider, (), "ada")
        assert several.value.hint == "Name those to delete. All of them: tpuctl down --all"
        assert names_of(plan_down(provider, (), "ada", everything=True)) == ["n1", "n3"]
        with pytest.raises(UsageError, match="exclude each other"):
            plan_down(provider, ("n1",), "ada", everything=True)

    def test_candidates_of_one_search_are_one(self) -> None:
        labels = {**node().labels, "tpuctl-race": "r1"}
        provider = MemoryProvider(node("n1", labels=labels))
        other = NodeId("memory", "p", "us-east1-d", "n1", "uid-2")
        provider.nodes["second"] = node("n1", labels=labels, id=other)
        assert names_of(plan_down(provider, (), "ada")) == ["n1", "n1"]
        provider.nodes["second"] = node("n1", id=other)
        with pytest.raises(StateError, match="There are 2 TPUs called 'n1'"):
            plan_down(provider, (), "ada")

    def test_a_named_one_is_meant_whoever_created_it(self) -> None:
        provider = MemoryProvider(node("n1"), node("n2", labels={}))
        assert names_of(plan_down(provider, ("n2",), "ada")) == ["n2"]

    def test_a_missing_name_is_an_error_of_every_name_that_is_missing(self) -> None:
        with pytest.raises(NotFoundError, match="There is no node 'n2'") as missing:
            plan_down(MemoryProvider(node("n1")), ("n1", "n2", "n3"), "ada")
        assert missing.value.facts["nodes"] == ["n2", "n3"]
        assert missing.value.message.endswith("Nothing was deleted.")

    def test_of_several_names_one_that_is_kept_leaves_all_and_says_so(self) -> None:
        kept = node("n2", labels={"managed-by": "terraform"})
        with pytest.raises(StateError, match=r"'n2' .* does not delete it\. Nothing was deleted\.$"):
            plan_down(MemoryProvider(node("n1"), kept), ("n1", "n2"), "ada")

    def test_a_name_in_two_zones_has_to_be_chosen_by_zone(self) -> None:
        first, second = node("dup"), node("dup", id=NodeId("memory", "p", "us-east1-d", "dup", "uid-2"))
        provider = MemoryProvider(first)
        provider.nodes["second"] = second
        with pytest.raises(StateError, match="There are 2 TPUs called 'dup': in us-central1-b and") as both:
            plan_down(provider, ("dup",), "ada")
        assert both.value.hint == "Choose one with --zone ZONE."
        assert plan_down(provider, ("dup",), "ada", "us-east1-d") == of(second)
        assert plan_down(provider, ("dup",), "ada", ZONE) == of(first)

    def test_a_queued_resource_is_meant_by_its_name_and_by_those_of_its_nodes(self) -> None:
        provider = with_queue(node("n1", queued_resource="q1"))
        for name in ("q1", "n1"):
            (allocation,) = plan_down(provider, (name,), "ada").allocations
            assert (allocation.name, allocation.nodes) == ("q1", (provider.nodes["n1"],))
        assert len(plan_down(provider, ("q1", "n1"), "ada").allocations) == 1

    def test_of_a_name_that_others_have_too_ones_own_is_meant(self) -> None:
        provider = with_queue(node("q1"))
        bobs = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("bob")}
        provider.queue["q1"] = replace(provider.queue["q1"], labels=bobs)
        assert plan_down(provider, ("q1",), "ada") == of(provider.nodes["q1"])
        assert names_of(plan_down(provider, ("n1",), "bob")) == ["q1"]
        with pytest.raises(StateError, match=r"2 TPUs of ada-.* and of bob-.* have the name 'q1'") as others:
            plan_down(provider, ("q1",), "eve")
        assert "tpuctl ls --all-users" in others.value.hint

    def test_both_things_of_one_owner_and_a_name_are_meant(self) -> None:
        provider = with_queue(node("q1"))
        for name in ("ada", "eve"):
            assert len(plan_down(provider, ("q1",), name).allocations) == 2

    def test_one_that_waits_is_meant_before_it_has_a_node(self) -> None:
        provider = with_queue()
        assert names_of(plan_down(provider, (), "ada")) == ["q1"]
        assert names_of(plan_down(provider, ("n1",), "ada")) == ["q1"], "the node that it will make"


class TestSilentZones:
    @pytest.fixture
    def provider(self) -> MemoryProvider:
        provider = MemoryProvider(node("n1"))
        provider.unreachable = ("us-east1-d",)
        return provider

    def test_what_is_found_is_deleted_although_a_zone_is_silent(self, provider: MemoryProvider) -> None:
        plan = plan_down(provider, ("n1",), "ada")
        assert plan == of(node("n1"))
        down(provider, plan, [].append)
        assert provider.nodes == {}

    def test_one_without_a_name_may_not_be_the_only_one(self, provider: MemoryProvider) -> None:
        with pytest.raises(DeadlineError, match="another TPU of yours may be there") as silent:
            plan_down(provider, (), "ada")
        assert silent.value.hint == "If you mean 'n1', name it."

    @pytest.mark.parametrize(("names", "everything"), [((), True), (("n1", "n2"), False)])
    def test_what_may_be_in_it_is_an_error_after_the_rest_is_deleted(
        self, provider: MemoryProvider, names: tuple[str, ...], everything: bool
    ) -> None:
        plan = plan_down(provider, names, "ada", everything=everything)
        assert plan.unreachable == ("us-east1-d",)
        with pytest.raises(
            DeadlineError, match="No answer from us-east1-d: TPUs there may continue"
        ) as silent:
            down(provider, plan, [].append)
        assert silent.value.hint == f"In a minute: tpuctl down {' '.join(names) or '--all'}"
        assert provider.nodes == {}, "the rest is deleted all the same"


def with_queue(*nodes: Node) -> MemoryProvider:
    """Return a provider with Ada's queued resource q1, which makes n1."""
    provider = MemoryProvider(*nodes)
    provider.queue["q1"] = queued_resource()
    return provider


def test_a_dry_run_shows_the_providers_requests() -> None:
    plan = plan_down(with_queue(node("n2")), (), "ada", everything=True)
    assert requests(MemoryProvider(), plan) == [
        HttpRequest("DeleteNode", "n2"),
        HttpRequest("DeleteQueuedResource", "q1"),
    ]


def test_everything_is_deleted_and_reported() -> None:
    provider, reports = with_queue(node("n1", queued_resource="q1"), node("n2")), list[str]()
    down(provider, plan_down(provider, (), "ada", everything=True), reports.append)
    assert (provider.nodes, provider.queue) == ({}, {})
    assert sorted(reports) == ["deleted n2", "deleted q1"]


def test_a_node_that_its_queued_resource_left_is_deleted_after_it() -> None:
    class Forgetful(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            if isinstance(change, DeleteQueuedResource):
                del self.queue[change.queued_resource.name]
                return Operation(change.queued_resource.name, lambda: True)
            return super().begin(change)

    provider = Forgetful(node("n1", queued_resource="q1"))
    provider.queue["q1"] = queued_resource()
    down(provider, plan_down(provider, ("q1",), "ada"), [].append)
    assert provider.nodes == {}


def test_a_node_of_another_origin_that_has_the_name_by_then_stays() -> None:
    provider = with_queue()
    plan = plan_down(provider, ("q1",), "ada")
    provider.nodes["n1"] = node("n1")
    provider.queue.clear()
    down(provider, plan, [].append)
    assert list(provider.nodes) == ["n1"]


def test_a_queued_resource_in_a_state_that_forbids_it_is_asked_again(passing_time: PassingTime) -> None:
    class Busy(MemoryProvider):
        refusals = 3

        def begin(self, change: Change) -> Operation:
            self.refusals -= 1
            if self.refusals >= 0:
                raise StateError("q1 is CREATING.")
            return super().begin(change)

    provider = Busy()
    provider.queue["q1"] = queued_resource()
    down(provider, plan_down(provider, (), "ada"), [].append)
    assert provider.queue == {}


def test_a_queued_resource_that_was_made_anew_stays_with_its_nodes() -> None:
    """The one that was meant was deleted while the question waited, and another `up` has used its name."""
    for nodes in ((), (node("n1", queued_resource="q1"),)):
        provider = with_queue(*nodes)
        plan = plan_down(provider, ("q1",), "ada")
        provider.queue["q1"] = queued_resource(created_at=CREATED + 1)
        another = node("n1", queued_resource="q1", id=NodeId("memory", "p", ZONE, "n1", "uid-1"))
        provider.nodes["n1"] = another
        down(provider, plan, [].append)
        assert list(provider.queue) == ["q1"]
        assert provider.nodes == {"n1": another}


def test_what_fails_is_named_as_billing_and_the_rest_is_deleted() -> None:
    class Failing(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            if isinstance(change, DeleteNode) and change.node.name == "n1":
                raise DeadlineError("No answer.", hint="Later.")
            return super().begin(change)

    provider = Failing(node("n1"), node("n2"))
    with pytest.raises(DeadlineError, match=r"^n1 in us-central1-b may still bill\. No answer\.$") as error:
        down(provider, plan_down(provider, (), "ada", everything=True), [].append)
    assert error.value.facts["may_bill"] == ["n1 in us-central1-b"]
    assert list(provider.nodes) == ["n1"]


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("", "Resume: tpuctl down n1"),
        ("Ask. Then check: tpuctl doctor", "Ask. Then check: tpuctl doctor\nResume: tpuctl down n1"),
        ("Then: tpuctl down --zone Z", "Then: tpuctl down --zone Z"),
    ],
)
def test_the_command_that_resumes_is_apart_from_that_of_the_failure(hint: str, shown: str) -> None:
    class Forbidden(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            raise ConfigError("No permission.", hint=hint)

    with pytest.raises(ConfigError) as refused:
        down(Forbidden(node()), of(node()), [].append)
    assert refused.value.hint == shown


def test_the_command_that_resumes_names_the_zone_that_was_named() -> None:
    """In another zone there may be another TPU of this name, which nobody meant."""

    class Forbidden(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            raise ConfigError("No permission.")

    provider = Forbidden(node())
    with pytest.raises(ConfigError) as refused:
        down(provider, plan_down(provider, ["n1"], "ada", ZONE), [].append)
    assert refused.value.hint == f"Resume: tpuctl down n1 --zone {ZONE}"


@pytest.mark.parametrize("error", [NotFoundError("n1 does not exist."), StateError("n1 is being deleted.")])
def test_a_node_that_somebody_else_deletes_is_waited_for(error: StateError) -> None:
    class Overtaken(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            self.nodes.clear()
            raise error

    reports = list[str]()
    down(Overtaken(node()), of(node()), reports.append)
    assert reports == ["deleted n1"]


class Unfinished(MemoryProvider):
    """Accepts a delete and never carries it out."""

    def __init__(self, *, operation_done: bool) -> None:
        super().__init__(node())
        self._operation_done = operation_done

    def begin(self, change: Change) -> Operation:
        return Operation("Node 'n1'", lambda: self._operation_done)


@pytest.mark.parametrize(("operation_done", "subject"), [(False, "Node"), (True, "node")])
def test_a_delete_is_given_fifteen_minutes(
    passing_time: PassingTime, operation_done: bool, subject: str
) -> None:
    reports = list[str]()
    with pytest.raises(DeadlineError) as timeout:
        down(Unfinished(operation_done=operation_done), of(node()), reports.append)
    assert timeout.value.message == (
        f"n1 in us-central1-b may still bill. Waited 900 s for {subject} 'n1' to be deleted."
    )
    assert timeout.value.hint == "Resume: tpuctl down n1"
    assert passing_time.now == pytest.approx(15 * 60)
    assert reports == []


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
