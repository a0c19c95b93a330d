"""Where `up` looks for capacity: what zones names mean, and which options contradict each other.

What there is of one name in several zones, and which of several stays.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node, queued_resource
from tpuctl.accelerators import accelerator
from tpuctl.catalogue.regions import BucketLocation
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.placement.creation import (
    Siblings,
    older_rival,
    require_candidates,
    require_in_zones,
    siblings,
)
from tpuctl.flows.nodes.placement.rounds import Search, Terms, check_search, expand, is_zone
from tpuctl.nodes import Node, NodeList, NodeState, QueueState
from tpuctl.nodes.candidates import RACE_LABEL

V3 = accelerator("v3-8")
ONE, TWO = ("us-central1-a",), ("us-central1-a", "europe-west4-a")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("us-central1-a", True), ("us-central1", False), ("any", False), ("europe-west4", False),
        ("nowhere", False), ("us-x", True),
    ],
)  # fmt: skip
def test_a_zone_is_told_from_a_region(name: str, expected: bool) -> None:
    assert is_zone(name) is expected


class TestExpand:
    def test_zones_are_taken_as_they_are_and_once(self) -> None:
        assert expand(["us-x", "us-central1-a", "us-x"], V3) == ("us-x", "us-central1-a")

    def test_a_region_stands_for_its_zones_with_the_type(self) -> None:
        zones = expand(["europe-west4"], V3)
        assert zones
        assert set(zones) == {zone for zone in V3.zones if zone.startswith("europe-west4-")}
        assert expand(["us-x", "europe-west4"], V3) == ("us-x", *zones)

    def test_any_stands_for_all(self) -> None:
        assert set(expand(["any"], V3)) == set(V3.zones)

    def test_documented_zones_come_first_then_the_cheaper_ones_and_last_those_that_lack_something(
        self,
    ) -> None:
        v6e = accelerator("v6e-8")
        assert set(v6e.documented) < set(v6e.zones)
        documented = expand(["any"], v6e)[: len(v6e.documented)]
        assert set(documented) == set(v6e.documented)
        prices = {zone: Terms(spot_price=Decimal(100 - place)) for place, zone in enumerate(documented)}
        prices[documented[0]] = Terms("no quota", Decimal(1))
        order = expand(["any"], v6e, terms=lambda zones: prices)
        assert order[: len(documented) - 1] == tuple(reversed(documented[1:]))
        assert order[-1] == documented[0]

    def test_the_bucket_comes_before_documentation_and_price(self) -> None:
        v6e, near = accelerator("v6e-8"), BucketLocation("b", "us-east4")
        zones = expand(["any"], v6e, near, lambda zones: {"us-east4-a": Terms(spot_price=Decimal(99))})
        assert "us-east4-a" not in v6e.documented
        assert zones[0] == "us-east4-a"

    @pytest.mark.parametrize(
        ("name", "suggestion"),
        [("europe-west5", "Did you mean europe-west4? "), ("anny", "Did you mean any? "), ("zzzzz", "")],
    )
    def test_a_region_without_the_type_is_refused(self, name: str, suggestion: str) -> None:
        with pytest.raises(UsageError) as error:
            expand(["us-x", name], V3)
        assert error.value.message == f"No zone of '{name}' is known to offer v3-8."
        assert error.value.hint == f"{suggestion}It is available in {', '.join(V3.zones)}."


class TestContradictions:
    @pytest.mark.parametrize(
        ("search", "is_queued", "message"),
        [
            (Search(ONE, race=True), True, "--race takes several zones."),
            (Search(TWO, race=True), True, ""),
            (Search(TWO, detach=True), True,
             "--detach leaves at once, and with several zones somebody has to wait, and cancel the rest."),
            (Search(ONE, detach=True), False, ""),
            (Search(ONE, detach=True, wait=60.0), False,
             "--detach leaves at once, and --wait-capacity waits."),
            (Search(ONE, detach=True, wait=60.0), True, ""),
            (Search(ONE, wait=60.0), False, ""),
            (Search(TWO), False, ""),
        ],
    )  # fmt: skip
    def test_which_options_exclude_each_other(self, search: Search, is_queued: bool, message: str) -> None:
        if message:
            with pytest.raises(UsageError) as error:
                check_search(search, is_queued=is_queued)
            assert error.value.message == message
        else:
            check_search(search, is_queued=is_queued)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (Search(ONE), ()),
        (Search(ONE, named=("us-central1-a",)), ("--zone", "us-central1-a")),
        (Search(TWO, named=("any", "a b"), race=True, wait=3600.0),
         ("--zone", "any", "--zone", "a b", "--race", "--wait-capacity", "1h")),
    ],
)  # fmt: skip
def test_a_search_is_repeated_by_its_words(search: Search, words: tuple[str, ...]) -> None:
    assert search.words == words


A, B, C = "us-central1-a", "us-central1-b", "europe-west4-a"
TERRAFORM = {"managed-by": "terraform"}


def made(zone: str, name: str = "n1", race: str = "", age: float = 0.0, **fields: Any) -> Node:
    """Return a node in a zone; one with a greater age is older."""
    plain = node(**fields)
    labels = {**plain.labels, RACE_LABEL: race} if race else plain.labels
    identity = replace(plain.id, zone=zone, name=name, uid=f"{zone}/{name}")
    return replace(plain, id=identity, labels=labels, created_at=plain.created_at - age)


class Listed(MemoryProvider):
    """Nodes of one name in several zones."""

    def __init__(self, *nodes: Node, silent: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.listed, self.unreachable = nodes, silent
        self.asked: list[str | None] = []

    def list_nodes(self, zone: str | None = None) -> NodeList:
        self.asked.append(zone)
        return NodeList(tuple(item for item in self.listed if zone in (None, item.zone)), self.unreachable)


def zones(items: tuple[Allocation, ...]) -> list[str]:
    return [item.zone for item in items]


class TestLook:
    def test_the_oldest_comes_first_and_what_has_ended_is_apart(self) -> None:
        provider = Listed(made(A), made(B, age=9), made(C, state=NodeState.PREEMPTED), made(A, "n2"))
        near = siblings(provider, "n1", [A, B, C])
        assert (zones(near.live), zones(near.ended), near.unreachable) == ([B, A], [C], ())

    def test_of_two_that_were_made_at_once_the_zone_decides(self) -> None:
        assert zones(siblings(Listed(made(B), made(A)), "n1", [A, B]).live) == [A, B]

    def test_other_zones_count_only_for_the_same_search(self) -> None:
        provider = Listed(made(A, race="r1"), made(B, race="r2"), made(C))
        assert zones(siblings(provider, "n1", [C], "r1").live) == [C, A]
        assert zones(siblings(provider, "n1", [A, B]).live) == [A, B]

    def test_one_zone_without_a_search_is_asked_alone(self) -> None:
        provider = Listed(made(A))
        siblings(provider, "n1", [A])
        siblings(provider, "n1", [A], "r1")
        siblings(provider, "n1", [A, B])
        assert provider.asked == [A, None, None]

    def test_only_silent_zones_of_the_search_may_hold_another(self) -> None:
        assert siblings(Listed(silent=(B, C)), "n1", [A, B]).unreachable == (B,)

    def test_a_queued_resource_is_known_by_its_name_and_those_of_its_nodes(self) -> None:
        provider = MemoryProvider()
        provider.queue["q1"] = queued_resource()
        for name, count in (("q1", 1), ("n1", 1), ("n2", 0)):
            assert len(siblings(provider, name, [B]).live) == count


class TestSecured:
    def allocation(self, state: QueueState, *nodes: Node, slices: int = 1) -> Allocation:
        planned = tuple(replace(node().id, name=f"n{number}") for number in range(slices))
        return Allocation(nodes, queued_resource(state, nodes=planned))

    @pytest.mark.parametrize(
        ("state", "nodes", "slices", "has_capacity"),
        [
            (QueueState.ACTIVE, 1, 1, True), (QueueState.ACTIVE, 1, 2, False),
            (QueueState.ACTIVE, 2, 2, True), (QueueState.ACTIVE, 0, 1, False),
            (QueueState.WAITING, 1, 1, False), (QueueState.SUSPENDED, 1, 1, False),
            (QueueState.DELETING, 1, 1, False),
        ],
    )  # fmt: skip
    def test_a_queued_resource_has_its_nodes_once_all_are_there(
        self, state: QueueState, nodes: int, slices: int, has_capacity: bool
    ) -> None:
        item = self.allocation(state, *[node()] * nodes, slices=slices)
        assert item.has_capacity is has_capacity
        assert Siblings((item,), ()).secured is (item if has_capacity else None)

    @pytest.mark.parametrize(
        ("state", "is_over", "is_leaving"),
        [
            (NodeState.READY, False, False), (NodeState.CREATING, False, False),
            (NodeState.STOPPED, False, False), (NodeState.PREEMPTED, True, False),
            (NodeState.DELETING, True, True),
        ],
    )  # fmt: skip
    def test_a_node_that_was_created_directly_is_had_until_it_is_lost(
        self, state: NodeState, is_over: bool, is_leaving: bool
    ) -> None:
        item = Allocation((node(state=state),))
        assert (item.is_over, item.is_leaving, item.has_capacity) == (is_over, is_leaving, not is_over)

    @pytest.mark.parametrize(
        ("state", "is_over", "is_leaving"),
        [
            (QueueState.ACTIVE, False, False), (QueueState.FAILED, True, False),
            (QueueState.SUSPENDED, True, False), (QueueState.DELETING, True, True),
        ],
    )  # fmt: skip
    def test_a_queued_resource_ends_by_its_own_state(
        self, state: QueueState, is_over: bool, is_leaving: bool
    ) -> None:
        item = self.allocation(state, node())
        assert (item.is_over, item.is_leaving) == (is_over, is_leaving)

    def test_the_oldest_with_nodes_stays(self) -> None:
        waiting, had = self.allocation(QueueState.WAITING), Allocation((made(B),))
        assert Siblings((waiting, had, Allocation((made(C),))), ()).secured is had
        assert Siblings((waiting,), ()).secured is None

    def test_those_that_are_not_meant_are_left_out(self) -> None:
        near = Siblings((Allocation((made(A),)), Allocation((made(B),))), (Allocation((made(C),)),), ("z",))
        only = near.only(lambda item: item.zone in (B, C))
        assert (zones(only.live), zones(only.ended), only.unreachable) == ([B], [C], ("z",))


class TestRequire:
    def test_candidates_of_one_search_may_be_several(self) -> None:
        require_candidates("n1", ())
        require_candidates("n1", (Allocation((made(A),)),))
        require_candidates("n1", [Allocation((made(zone, race="r1"),)) for zone in (A, B)])

    @pytest.mark.parametrize("races", [("", ""), ("r1", "r2"), ("r1", ""), ("", "r1")])
    def test_others_are_not(self, races: tuple[str, str]) -> None:
        live = [Allocation((made(zone, race=race),)) for zone, race in zip((B, A), races, strict=True)]
        with pytest.raises(StateError) as error:
            require_candidates("n1", live)
        assert error.value.message == f"There are 2 TPUs called 'n1': in {A} and in {B}."
        assert error.value.hint == "Choose one with --zone ZONE, or delete one: tpuctl down n1 --zone ZONE"

    def test_what_terraform_keeps_no_command_deletes(self) -> None:
        live = [Allocation((made(A),)), Allocation((made(B, labels=TERRAFORM),))]
        with pytest.raises(StateError) as error:
            require_candidates("n1", live)
        assert error.value.hint == "Choose one with --zone ZONE."

    def test_one_in_another_zone_is_of_another_search(self) -> None:
        item = Allocation((made(A),))
        assert require_in_zones(item, [A, B]) is item
        with pytest.raises(StateError) as error:
            require_in_zones(item, [B])
        assert error.value.message == f"'n1' is in {A} already, by another 'tpuctl up' in several zones."
        assert error.value.hint == (
            f"The same command with --zone {A} uses it, another --name makes another TPU.\n"
            "Delete it: tpuctl down n1"
        )


def test_an_older_one_stays_in_the_place_of_ones_own() -> None:
    own, older = Allocation((made(B, age=1),)), Allocation((made(A, age=2),))
    younger = Allocation((made(C),))
    assert older_rival(Siblings((older, own), ()), own) is older
    assert older_rival(Siblings((own, younger), ()), own) is None
    assert older_rival(Siblings((younger,), ()), own) is None
    assert older_rival(Siblings((), ()), own) is None
