"""Which node a command means.

Which of several TPUs a name, or no name, means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node, queued_resource
from tpuctl.errors import DeadlineError, NotFoundError, PreemptedError, StateError, TpuctlError
from tpuctl.flows.nodes.lookup import (
    Allocation,
    choose,
    choose_candidates,
    find_allocation,
    find_candidates,
    find_node,
    find_ready,
    is_deletable,
    node_state,
    require_decided,
)
from tpuctl.nodes import Node, NodeId, NodeState, QueueState, joined
from tpuctl.nodes.candidates import RACE_LABEL
from tpuctl.nodes.queued_resources import require_ready


def test_a_node_is_found_by_its_identity() -> None:
    provider = MemoryProvider(node())
    assert find_node(provider, node().id) == node()
    assert node_state(provider, node().id) is NodeState.READY


def test_a_node_whose_name_is_another_nodes_is_gone() -> None:
    former = replace(node().id, uid="former")
    assert find_node(MemoryProvider(node()), former) is None
    assert node_state(MemoryProvider(node()), former) is NodeState.GONE


@pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.READY])
def test_a_node_that_is_not_ready_is_refused_in_the_providers_own_words(state: NodeState) -> None:
    error = PreemptedError if state is NodeState.PREEMPTED else StateError
    with pytest.raises(error, match=rf"^Node 'n1' is its {state}\.$"):
        require_ready(node(state=state))


def test_a_named_node_is_used_whoever_created_it() -> None:
    foreign = node("n2", labels={})
    assert find_ready(MemoryProvider(node(), foreign), "n2", None, "ada") == foreign


def test_a_name_that_no_node_has_suggests_the_nearest() -> None:
    with pytest.raises(NotFoundError, match=r"^There is no node 'n2'\.$") as missing:
        find_ready(MemoryProvider(node()), "n2", None, "ada")
    assert missing.value.hint == "Did you mean n1?"


@pytest.mark.parametrize(
    ("names", "hint"), [(["cats", "dogs"], "Existing nodes: cats, dogs."), ([], "There are no nodes.")]
)
def test_a_name_that_is_near_no_other_lists_the_nodes(names: list[str], hint: str) -> None:
    with pytest.raises(NotFoundError) as missing:
        find_ready(MemoryProvider(*map(node, names)), "xyzw", None, "ada")
    assert missing.value.hint == hint


def test_a_name_in_other_letters_is_the_nearest() -> None:
    with pytest.raises(NotFoundError) as missing:
        find_ready(MemoryProvider(node("n1"), node("o1")), "N1", None, "ada")
    assert missing.value.hint == "Did you mean n1?"


def test_where_one_zone_was_looked_at_its_name_is_said() -> None:
    elsewhere = MemoryProvider()
    for name in ("xyzw", None):
        with pytest.raises(StateError, match=r" in us-east1-d\.$") as missing:
            find_ready(elsewhere, name, "v3-8", "ada", "us-east1-d")
        assert "In every zone: the same command without --zone." in missing.value.hint
    with pytest.raises(NotFoundError, match=r"^There is no node 'xyzw' in us-east1-d\.$"):
        find_allocation(elsewhere, "xyzw", "us-east1-d")


def test_of_several_types_the_first_counts_that_is_ready() -> None:
    nodes = (node("n1", accelerator="v3-8"), node("n2", NodeState.CREATING, accelerator="v2-8"))
    assert find_ready(MemoryProvider(*nodes), None, ("v2-8", "v3-8"), "ada").name == "n1"
    both = (nodes[0], node("n2", accelerator="v2-8"))
    assert find_ready(MemoryProvider(*both), None, ("v2-8", "v3-8"), "ada").name == "n2"


def test_without_a_name_it_is_the_users_only_ready_node_of_the_type() -> None:
    mine = node("n2", accelerator="v2-8")
    others = [node("n1"), node("n3", accelerator="v2-8", labels={}),
              node("n4", NodeState.CREATING, accelerator="v2-8")]  # fmt: skip
    assert find_ready(MemoryProvider(*others, mine), None, "v2-8", "ada") == mine


def test_of_several_ready_nodes_one_has_to_be_named() -> None:
    with pytest.raises(StateError, match="Several nodes fit: n1, n2") as several:
        find_ready(MemoryProvider(node("n1"), node("n2")), None, None, "ada")
    assert "--tpu NAME" in several.value.hint


def test_a_node_that_is_not_ready_yet_says_so() -> None:
    with pytest.raises(StateError, match="Node 'n1' is its CREATING"):
        find_ready(MemoryProvider(node(state=NodeState.CREATING)), None, None, "ada")


def test_a_node_of_which_hosts_are_not_listed_is_not_used() -> None:
    partial = node(accelerator="v3-32", addresses=("10.0.0.1",) * 3)
    for name in ("n1", None):
        with pytest.raises(
            StateError, match=r"^Node 'n1' is its READY, but the provider lists 3 of its 4 hosts\.$"
        ):
            find_ready(MemoryProvider(partial), name, None, "ada")


def test_without_any_node_the_hint_creates_one() -> None:
    with pytest.raises(StateError, match="There is no v2-8 to run on") as missing:
        find_ready(MemoryProvider(), None, "v2-8", "ada")
    assert missing.value.hint == "Create one: tpuctl up v2-8"


def test_a_name_in_two_zones_has_to_be_chosen_by_zone() -> None:
    provider = MemoryProvider(node("dup"))
    provider.nodes["second"] = node("dup", id=NodeId("memory", "p", "us-east1-d", "dup", "uid-2"))
    with pytest.raises(StateError, match="There are 2 TPUs called 'dup': in us-central1-b and in us-east1-d"):
        find_ready(provider, "dup", None, "ada")
    assert find_ready(provider, "dup", None, "ada", "us-east1-d").zone == "us-east1-d"


@pytest.mark.parametrize(("name", "subject"), [(None, "your TPU"), ("n9", "node 'n9'")])
def test_a_zone_that_does_not_answer_may_hold_what_is_missing(name: str | None, subject: str) -> None:
    provider = MemoryProvider(node("n1", labels={}))
    provider.unreachable = ("us-east1-d",)
    with pytest.raises(DeadlineError, match=f"No answer from us-east1-d: {subject} may be there") as silent:
        find_ready(provider, name, None, "ada")
    assert "A second TPU would bill besides" in silent.value.hint


def test_a_silent_zone_does_not_hide_a_node_elsewhere() -> None:
    provider = MemoryProvider(node("n1"))
    provider.unreachable = ("us-east1-d",)
    assert find_ready(provider, None, None, "ada").name == "n1"
    assert find_ready(provider, "n1", None, "ada").name == "n1"


class Silent(MemoryProvider):
    """A provider that does not answer about a node."""

    def get_node(self, node: NodeId) -> Node:
        raise DeadlineError("No answer.")


@pytest.mark.parametrize(
    ("provider", "is_deletable_there"),
    [
        (MemoryProvider(node()), True),
        (MemoryProvider(node(labels={})), True),
        (MemoryProvider(node(labels={"managed-by": "terraform"})), False),
        (MemoryProvider(), True),
        (Silent(node(labels={"managed-by": "terraform"})), True),
    ],
)
def test_a_hint_may_name_the_deletion_of_what_terraform_does_not_keep(
    provider: MemoryProvider, is_deletable_there: bool
) -> None:
    assert is_deletable(provider, node().id) is is_deletable_there


class TestSlices:
    """Of one request, which are one node unless one of them is named."""

    SLICES = tuple(
        node(
            name,
            queued_resource="q1",
            multislice=True,
            accelerator="v4-16",
            addresses=(f"{name}a", f"{name}b"),
        )
        for name in ("ms-0", "ms-1")
    )

    def provider(self, *nodes: Node) -> MemoryProvider:
        provider = MemoryProvider(*nodes)
        provider.queue["q1"] = queued_resource(
            QueueState.ACTIVE, nodes=tuple(part.id for part in self.SLICES)
        )
        return provider

    @pytest.mark.parametrize("name", ["q1", None])
    def test_have_their_hosts_one_after_the_other(self, name: str | None) -> None:
        whole = find_ready(self.provider(*reversed(self.SLICES)), name, None, "ada")
        assert (whole.name, whole.hosts) == ("q1", 4)
        assert whole.addresses == ("ms-0a", "ms-0b", "ms-1a", "ms-1b")
        assert [whole.id.host(worker) for worker in (1, 2)] == [
            (self.SLICES[0].id, 1), (self.SLICES[1].id, 0),
        ]  # fmt: skip

    def test_are_meant_by_their_own_names(self) -> None:
        assert find_ready(self.provider(*self.SLICES), "ms-1", None, "ada") == self.SLICES[1]

    def test_are_several_beside_another_node(self) -> None:
        with pytest.raises(StateError, match=r"^Several nodes fit: q1, n1\.$"):
            find_ready(self.provider(*self.SLICES, node()), None, None, "ada")

    def test_are_no_node_while_one_is_missing(self) -> None:
        with pytest.raises(StateError, match=r"^'q1' has 1 of its 2 slices: it is its ACTIVE\.$"):
            find_ready(self.provider(self.SLICES[1]), "q1", None, "ada")

    @pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.READY])
    def test_are_as_ready_as_the_last_of_them(self, state: NodeState) -> None:
        one = replace(self.SLICES[0], state=state, addresses=())
        whole = joined("ms", (one, self.SLICES[1]))
        assert (whole.state, whole.addresses) == (state, ("", "", "ms-1a", "ms-1b"))
        assert joined("ms", (self.SLICES[1], one)).state is state


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
