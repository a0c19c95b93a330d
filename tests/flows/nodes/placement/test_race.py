"""Candidates in several zones: which one stays, which are cancelled and how, and what is said of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node, queued_resource
from tests.flows.passing_time import PassingTime
from tpuctl.cloud.provider import Operation
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    NotFoundError,
    StateError,
    StockoutError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.nodes.placement.race import Race
from tpuctl.nodes import (
    Change,
    CreateQueuedResource,
    DeleteNode,
    DeleteQueuedResource,
    Node,
    NodeId,
    NodeList,
    NodeRequest,
    NodeState,
    QueuedResource,
    QueuedResourceId,
    QueuedResourceList,
    QueuedResourceRequest,
    QueueState,
    SshKey,
    owner_label,
)
from tpuctl.nodes.candidates import RACE_LABEL

A, B, C = "us-central1-a", "us-central1-b", "europe-west4-a"
MINE = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada")}
THEIRS = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("bob")}


def queued(
    zone: str, state: QueueState = QueueState.WAITING, age: float = 0, **fields: Any
) -> QueuedResource:
    """Return a candidate in a zone; one with a greater age is older."""
    plain = queued_resource(state)
    labels = fields.pop("labels", {**MINE, RACE_LABEL: "race"})
    planned = (NodeId("memory", "p", zone, "n1"),)
    identity = replace(plain.id, zone=zone, name="n1")
    return replace(plain, id=identity, nodes=planned, labels=labels, created_at=1000.0 - age, **fields)


def had(zone: str, state: NodeState = NodeState.READY, **fields: Any) -> Node:
    """Return the node of a candidate."""
    plain = node(state=state, queued_resource="n1", **fields)
    return replace(plain, id=replace(plain.id, zone=zone, uid=zone))


class Zones(MemoryProvider):
    """What several zones have of one name; deletions are done, or refused, as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, QueuedResource] = {}
        self.placed: dict[str, Node] = {}
        self.begun: list[Change] = []
        self.errors: dict[str, TpuctlError] = {}
        """Zone -> of changes there."""
        self.keeps_deleting = False
        self.looks: list[Callable[[], object]] = []
        """Done before the next looks, each of which lists nodes and queued resources at once."""
        self._listings, self._lock = 0, threading.Lock()

    def add(self, *candidates: QueuedResource | Node) -> None:
        for item in candidates:
            if isinstance(item, Node):
                self.placed[item.zone] = item
            else:
                self.waiting[item.zone] = item

    def _list(self) -> None:
        with self._lock:
            if self._listings % 2 == 0 and self.looks:
                self.looks.pop(0)()
            self._listings += 1

    def list_nodes(self, zone: str | None = None) -> NodeList:
        self._list()
        return NodeList(tuple(self.placed.values()), self.unreachable)

    def list_queued_resources(self, zone: str | None = None) -> QueuedResourceList:
        self._list()
        return QueuedResourceList(tuple(self.waiting.values()), self.unreachable)

    def get_node(self, node: NodeId) -> Node:
        return self.placed[node.zone]

    def get_queued_resource(self, queued_resource: QueuedResourceId) -> QueuedResource:
        if queued_resource.zone not in self.waiting:
            raise NotFoundError("gone")
        return self.waiting[queued_resource.zone]

    def begin(self, change: Change) -> Operation:
        self.begun.append(change)
        zone = change.request.id.zone if hasattr(change, "request") else _zone(change)
        if zone in self.errors:
            raise self.errors[zone]
        match change:
            case CreateQueuedResource():
                self.add(queued(zone))
            case DeleteQueuedResource() if self.keeps_deleting:
                self.waiting[zone] = replace(self.waiting[zone], state=QueueState.DELETING)
            case DeleteQueuedResource():
                del self.waiting[zone]
                self.placed.pop(zone, None)
            case DeleteNode():
                del self.placed[zone]
        return Operation("it", lambda: True)

    def deleted(self) -> list[tuple[str, bool]]:
        """Zone and force of each deletion of a queued resource."""
        deletions = [item for item in self.begun if isinstance(item, DeleteQueuedResource)]
        return [(item.queued_resource.zone, item.force) for item in deletions]


def _zone(change: Any) -> str:
    return str((change.queued_resource if isinstance(change, DeleteQueuedResource) else change.node).zone)


def request(zone: str) -> CreateQueuedResource:
    identity = NodeId("memory", "p", zone, "n1")
    pattern = NodeRequest(identity, "v3-8", "image-2", False, {}, SshKey("ada", "key"))
    return CreateQueuedResource(QueuedResourceRequest(QueuedResourceId("memory", "p", zone, "n1"), pattern))


@pytest.fixture
def zones(passing_time: PassingTime) -> Zones:
    """Nothing exists; waiting takes no time."""
    return Zones()


@pytest.fixture
def said() -> list[str]:
    """What is reported."""
    return []


@pytest.fixture
def race(zones: Zones, said: list[str]) -> Race:
    """The search of Ada in zones A and B."""
    return Race(zones, "n1", "race", [A, B], said.append, "ada")


def winning(zones: Zones, zone: str, age: float = 0) -> Callable[[], None]:
    """Return what gives a zone's candidate its node."""
    return lambda: zones.add(queued(zone, QueueState.ACTIVE, age), had(zone))


class TestRun:
    def test_candidates_that_are_missing_are_created_and_the_first_with_nodes_stays(
        self, zones: Zones, race: Race, said: list[str]
    ) -> None:
        zones.add(queued(A, age=9))
        zones.looks = [lambda: None, lambda: None, winning(zones, B)]
        winner = race.run([request(A), request(B)], 0.0)
        assert (winner.zone, [item.name for item in winner.nodes]) == (B, ["n1"])
        created = [item.request.id.zone for item in zones.begun if isinstance(item, CreateQueuedResource)]
        assert created == [B]
        assert zones.deleted() == [(A, False)], "an older one without nodes is only withdrawn"
        assert said == [
            f"queueing n1 (v3-8) in {B}", f"n1 is its WAITING in {A}, its WAITING in {B}",
            f"n1 is in {B}; cancelling {A}", f"n1 is its ACTIVE in {B}",
        ]  # fmt: skip

    def test_where_one_has_its_nodes_nothing_is_created(self, zones: Zones, race: Race) -> None:
        winning(zones, A)()
        assert race.run([request(A), request(B)], 0.0).zone == A
        assert zones.begun == []

    def test_what_has_ended_is_not_created_again_in_its_zone(self, zones: Zones, race: Race) -> None:
        zones.add(queued(A, QueueState.FAILED))
        zones.looks = [lambda: None, winning(zones, B)]
        race.run([request(A), request(B)], 0.0)
        created = [item.request.id.zone for item in zones.begun if isinstance(item, CreateQueuedResource)]
        assert created == [B]

    def test_a_zone_that_refuses_is_named_and_the_others_wait(
        self, zones: Zones, race: Race, said: list[str]
    ) -> None:
        zones.errors[A] = UsageError("No quota.")
        zones.looks = [lambda: None, winning(zones, B)]
        assert race.run([request(A), request(B)], 0.0).zone == B
        assert f"not in {A}: No quota." in said

    def test_the_first_error_stands_where_all_zones_refuse(self, zones: Zones, race: Race) -> None:
        zones.errors = {A: UsageError("No quota."), B: StateError("No network.")}
        with pytest.raises(UsageError, match=r"^No quota\.$"):
            race.run([request(A), request(B)], 0.0)

    def test_unless_another_command_has_a_candidate(self, zones: Zones, race: Race) -> None:
        zones.errors = {A: UsageError("No quota."), B: StateError("No network.")}
        zones.looks = [lambda: None, lambda: zones.add(queued(C)), winning(zones, A, 9)]
        assert race.run([request(A), request(B)], 0.0).zone == A

    def test_without_capacity_all_leave_their_queues(
        self, zones: Zones, race: Race, passing_time: PassingTime
    ) -> None:
        with pytest.raises(StockoutError) as error:
            race.run([request(A), request(B)], 600.0)
        assert error.value.message == (
            f"There was no capacity for 'n1' in any of {A}, {B} within 10m; "
            "its requests are out of the queues again."
        )
        assert error.value.hint == "Repeat the command to queue again."
        assert sorted(zones.deleted()) == [(A, False), (B, False)]
        assert 500 <= passing_time.now <= 700

    def test_one_that_cannot_be_withdrawn_says_why(self, zones: Zones, race: Race) -> None:
        zones.add(queued(A), queued(B))
        zones.errors[B] = DeadlineError("no answer")
        with pytest.raises(DeadlineError, match="no answer"):
            race.run([request(A), request(B)], 60.0)

    def test_the_failure_of_the_last_candidate_is_why_there_is_none(self, zones: Zones, race: Race) -> None:
        failure = StockoutError("There is no capacity.")
        failed = [queued(A, QueueState.FAILED), queued(B, QueueState.FAILED, failure=failure)]
        zones.looks = [lambda: None, lambda: zones.add(*failed)]
        with pytest.raises(StockoutError, match=r"^There is no capacity\.$"):
            race.run([request(A), request(B)], 0.0)

    def test_candidates_that_somebody_deletes_are_missed(self, zones: Zones, race: Race) -> None:
        zones.looks = [lambda: None, zones.waiting.clear]
        with pytest.raises(NotFoundError) as error:
            race.run([request(A), request(B)], 0.0)
        assert error.value.message == "The candidates of 'n1' were deleted meanwhile."
        assert error.value.hint == "'tpuctl up' again creates another."

    def test_a_name_that_others_have_taken_is_said(self, zones: Zones, race: Race) -> None:
        other = had(B, labels=THEIRS, metadata={"tpuctl-owner": "bob@x"})
        alone = replace(other, queued_resource="")
        zones.looks = [lambda: None, lambda: (zones.waiting.clear(), zones.add(alone))]
        with pytest.raises(StateError) as error:
            race.run([request(A)], 0.0)
        assert error.value.message == (
            f"'n1' in {B} belongs to bob@x, and there is no candidate of yours any more."
        )
        assert error.value.hint == (
            "Give yours another name with --name, or use one of these: 'tpuctl up' with "
            f"--name n1 --zone {B}."
        )


class TestSettle:
    def test_a_younger_one_is_deleted_with_its_nodes(self, zones: Zones, race: Race) -> None:
        zones.add(queued(A, QueueState.ACTIVE, 9), had(A), queued(B, QueueState.ACTIVE, 1), had(B))
        assert race.settle().zone == A
        assert zones.deleted() == [(B, True)]

    @pytest.mark.parametrize("state", [QueueState.FAILED, QueueState.SUSPENDED])
    def test_one_that_has_ended_is_deleted_with_what_it_has(
        self, zones: Zones, race: Race, state: QueueState
    ) -> None:
        zones.add(queued(A, QueueState.ACTIVE, 1), had(A), queued(B, state, 9))
        assert race.settle().zone == A
        assert zones.deleted() == [(B, True)]

    def test_of_the_same_age_the_first_zone_stays(self, zones: Zones, race: Race) -> None:
        zones.add(queued(A, QueueState.ACTIVE), had(A), queued(B, QueueState.ACTIVE), had(B))
        assert race.settle().zone == A
        assert zones.deleted() == [(B, True)]

    def test_a_node_that_a_command_for_one_zone_has_made_is_never_deleted(
        self, zones: Zones, race: Race, said: list[str]
    ) -> None:
        own = replace(had(B), queued_resource="", labels=MINE)
        zones.add(queued(A, QueueState.ACTIVE, 9), had(A), own)
        with pytest.raises(StateError, match="There are 2 TPUs called 'n1'"):
            race.settle()
        assert zones.begun == []

    def test_one_of_another_owner_is_no_candidate(self, zones: Zones, race: Race) -> None:
        zones.add(queued(A, QueueState.ACTIVE, 1), had(A), replace(had(B), queued_resource="", labels=THEIRS))
        assert race.settle().zone == A
        assert zones.begun == []

    def test_a_node_that_has_ended_is_deleted(self, zones: Zones, race: Race) -> None:
        lost = replace(had(B, NodeState.PREEMPTED), queued_resource="", labels={**MINE, RACE_LABEL: "race"})
        zones.add(queued(A, QueueState.ACTIVE, 1), had(A), lost)
        assert race.settle().zone == A
        assert zones.begun == [DeleteNode(lost.id)]

    def test_what_cannot_be_cancelled_is_said_and_tried_again(
        self, zones: Zones, race: Race, said: list[str]
    ) -> None:
        zones.add(queued(A, QueueState.ACTIVE, 9), had(A), queued(B))
        zones.errors[B] = StateError("It is busy.")
        zones.looks = [lambda: None, lambda: None, zones.errors.clear]
        assert race.settle().zone == A
        assert said[0] == f"{B}: It is busy."
        assert len(zones.deleted()) == 3

    def test_one_that_may_not_be_cancelled_ends_the_wait(
        self, zones: Zones, race: Race, passing_time: PassingTime
    ) -> None:
        zones.errors[B] = ConfigError("You may not delete it.")
        zones.add(queued(A, QueueState.ACTIVE, 9), had(A), queued(B))
        with pytest.raises(ConfigError, match="You may not delete it"):
            race.settle()
        assert passing_time.now < 60

    def test_one_that_is_being_deleted_for_long_may_bill(
        self, zones: Zones, race: Race, said: list[str], passing_time: PassingTime
    ) -> None:
        zones.keeps_deleting = True
        zones.add(queued(A, QueueState.ACTIVE, 9), had(A), queued(B, QueueState.ACTIVE), had(B))
        assert race.settle().zone == A
        assert f"n1 is still being deleted in {B}: it may bill until 'tpuctl ls' shows none" in said
        assert 100 <= passing_time.now < 300
        assert zones.deleted() == [(B, True)], "once it is asked for, that goes on"

    def test_one_that_is_never_deleted_is_named(
        self, zones: Zones, race: Race, passing_time: PassingTime
    ) -> None:
        zones.errors[B] = StateError("It is busy.")
        zones.add(queued(A, QueueState.ACTIVE, 9), had(A), queued(B))
        with pytest.raises(DeadlineError, match="the other candidates of 'n1' to be deleted") as error:
            race.settle()
        assert error.value.hint == "They bill. See them: tpuctl ls\nDelete all: tpuctl down n1"
        assert 3600 <= passing_time.now < 4000

    def test_a_zone_that_does_not_answer_is_asked_again(
        self, zones: Zones, race: Race, said: list[str]
    ) -> None:
        winning(zones, A)()
        zones.unreachable = (B,)

        def answer() -> None:
            zones.unreachable = ()

        zones.looks = [lambda: None, lambda: None, answer]
        assert race.settle().zone == A
        assert said[0] == f"no answer from {B}; asking again"


class TestJoin:
    def test_what_others_have_created_is_waited_for(self, zones: Zones, race: Race) -> None:
        zones.add(queued(A), queued(B))
        zones.looks = [lambda: None, winning(zones, A)]
        assert race.join().zone == A

    def test_where_none_has_its_nodes_they_wait_on(
        self, zones: Zones, race: Race, passing_time: PassingTime
    ) -> None:
        zones.add(queued(A), queued(B))
        with pytest.raises(DeadlineError, match=f"'n1' still waits for capacity in {A}, {B}"):
            race.join(60.0)
        assert zones.begun == []
        assert 50 <= passing_time.now <= 90

    def test_a_winner_in_no_zone_of_ones_own_is_another_searchs(self, zones: Zones, race: Race) -> None:
        winning(zones, C)()
        with pytest.raises(StateError, match=f"'n1' is in {C} already, by another 'tpuctl up'"):
            race.join()

    def test_without_a_label_of_a_race_only_ones_own_are_candidates(
        self, zones: Zones, said: list[str]
    ) -> None:
        for zone, labels in ((A, THEIRS), (B, MINE)):
            zones.add(replace(had(zone), queued_resource="", labels=labels))
        assert Race(zones, "n1", "", [A, B], said.append, "ada").join().zone == B
