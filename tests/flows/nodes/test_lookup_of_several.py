"""Which of several TPUs a name, or no name, means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node, queued_resource
from tpuctl.errors import DeadlineError, NotFoundError, StateError, TpuctlError
from tpuctl.flows.nodes.lookup import (
    Allocation,
    choose,
    choose_candidates,
    find_allocation,
    find_candidates,
    find_ready,
    require_decided,
)
from tpuctl.nodes import Node, NodeState
from tpuctl.nodes.candidates import RACE_LABEL

A, B = "us-central1-a", "us-central1-b"
TERRAFORM = {"managed-by": "terraform"}


def made(zone: str, race: str = "", name: str = "n1", **fields: Any) -> Node:
    plain = node(name, **fields)
    labels = {**plain.labels, RACE_LABEL: race} if race else plain.labels
    return replace(plain, id=replace(plain.id, zone=zone, name=name, uid=f"{zone}/{name}"), labels=labels)


def alone(*nodes: Node) -> list[Allocation]:
    return [Allocation((item,)) for item in nodes]


class TestName:
    def test_one_of_the_name_is_meant(self) -> None:
        first, second = alone(made(A), made(B, name="n2"))
        assert choose([first, second], "n1") is first
        assert choose([first, second], "n3") is None
        assert choose_candidates([first, second], "n2") == (second,)
        assert choose_candidates([first, second], "n3") == ()

    def test_a_queued_resource_is_meant_by_its_node_too(self) -> None:
        item = Allocation((), queued_resource())
        assert choose([item], "n1") is item
        assert choose([item], "q1") is item

    @pytest.mark.parametrize("races", [("", ""), ("r1", "r2"), ("r1", "")])
    def test_several_have_to_be_told_by_zone(self, races: tuple[str, str]) -> None:
        items = alone(made(B, races[0]), made(A, races[1]))
        for call in (lambda: choose(items, "n1"), lambda: choose_candidates(items, "n1")):
            with pytest.raises(StateError) as error:
                call()
            assert error.value.message == f"There are 2 TPUs called 'n1': in {A} and in {B}."
            assert error.value.hint == "Choose one with --zone ZONE."
        with pytest.raises(StateError, match="There are 2 TPUs"):
            require_decided("n1", items)

    def test_candidates_of_one_search_are_all_meant_and_none_is_decided(self) -> None:
        items = alone(made(A, "r1"), made(B, "r1"))
        assert choose_candidates(items, "n1") == tuple(items)
        with pytest.raises(StateError) as error:
            require_decided("n1", items)
        assert error.value.message == f"'n1' is not decided: there are candidates in {A}, {B}."
        assert error.value.hint == "Repeat the command that created them.\nDelete all: tpuctl down n1"
        assert require_decided("n1", items[:1]) is items[0]

    def test_a_name_that_a_silent_zone_may_have(self) -> None:
        provider = MemoryProvider(node())
        provider.unreachable = (A,)
        assert find_allocation(provider, "n1", None).name == "n1"
        for find, subject in ((find_allocation, "'n2'"), (find_candidates, "'n2'")):
            with pytest.raises(DeadlineError, match=f"No answer from {A}: {subject} may be there"):
                find(provider, "n2", None)
        with pytest.raises(DeadlineError, match="the TPU of r1 may be there"):
            find_allocation(provider, "n2", None, "the TPU of r1")

    def test_a_name_that_nobody_has_suggests_another(self) -> None:
        with pytest.raises(NotFoundError) as error:
            find_candidates(MemoryProvider(node("trainer")), "trainr", None)
        assert (error.value.message, error.value.hint) == (
            "There is no node 'trainr'.", "Did you mean trainer?",
        )  # fmt: skip


class TestWithoutName:
    def find(self, *nodes: Node, types: Any = None) -> str:
        provider = MemoryProvider(*nodes)
        return find_ready(provider, None, types, "ada").name

    def test_ones_own_comes_before_that_of_terraform(self) -> None:
        shared = made(B, name="shared", labels=TERRAFORM)
        assert self.find(shared, made(B)) == "n1"
        assert self.find(shared) == "shared"
        assert self.find(shared, made(B, state=NodeState.STOPPED)) == "shared"

    def test_of_types_the_first_with_a_ready_node_counts(self) -> None:
        small, large = made(B, name="small", accelerator="v2-8"), made(B, name="large")
        assert self.find(small, large, types=["v3-8", "v2-8"]) == "large"
        assert self.find(small, large, types=["v2-8", "v3-8"]) == "small"
        assert self.find(small, large, types="v2-8") == "small"
        assert self.find(small, types=["v3-8", "v2-8"]) == "small"

    def test_several_have_to_be_told_by_name(self) -> None:
        with pytest.raises(StateError) as error:
            self.find(made(B), made(B, name="n2"))
        assert (error.value.message, error.value.hint) == (
            "Several nodes fit: n1, n2.", "Choose one with --tpu NAME.",
        )  # fmt: skip
        with pytest.raises(StateError, match=r"^Several nodes fit: n1, n2\.$"):
            self.find(made(B), made(B, name="n2"), types=["v2-8", "v3-8"])

    def test_where_none_is_ready_the_first_says_why(self) -> None:
        with pytest.raises(StateError, match="Node 'n1' is its STOPPED"):
            self.find(made(B, state=NodeState.STOPPED))

    def test_where_none_is_ready_ones_own_says_why_before_that_of_terraform(self) -> None:
        shared = made(B, name="shared", labels=TERRAFORM, state=NodeState.CREATING)
        with pytest.raises(StateError, match="Node 'n1' is its STOPPED"):
            self.find(shared, made(B, state=NodeState.STOPPED))

    @pytest.mark.parametrize(
        ("types", "kind"), [(None, "v3-8"), ("v2-8", "v2-8"), (["v2-8", "v3-8"], "v2-8")]
    )
    def test_without_any_the_hint_makes_one(self, types: Any, kind: str) -> None:
        with pytest.raises(TpuctlError) as error:
            self.find(types=types)
        assert error.value.hint.split() == ["Create", "one:", "tpuctl", "up", kind]


class TestASearch:
    """Its candidates share a label, which the one that stays keeps."""

    def test_leaves_one_that_is_used(self) -> None:
        provider = MemoryProvider(made(A, "r1"))
        assert find_ready(provider, "n1", None, "ada").zone == A

    def test_that_has_ended_elsewhere_leaves_one_that_is_used(self) -> None:
        provider = MemoryProvider(made(A, "r1"))
        provider.nodes["second"] = made(B, "r1", state=NodeState.PREEMPTED)
        assert find_ready(provider, "n1", None, "ada", A).zone == A

    def test_for_another_name_or_of_another_time_does_not_count(self) -> None:
        provider = MemoryProvider(made(A, "r1"), made(B, "r1", "n2"))
        provider.nodes["third"] = made(B, "r2")
        assert find_ready(provider, "n1", None, "ada", A).zone == A

    def test_that_goes_on_elsewhere_has_decided_nothing(self) -> None:
        provider = MemoryProvider(made(A, "r1"))
        provider.nodes["second"] = made(B, "r1", state=NodeState.CREATING)
        with pytest.raises(StateError, match="'n1' is not decided"):
            find_ready(provider, "n1", None, "ada", A)
