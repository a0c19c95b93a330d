"""A change of a node's metadata, which is replaced as a whole: what other clients change stays."""

from __future__ import annotations

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.passing_time import PassingTime
from tpuctl.cloud.provider import Operation
from tpuctl.errors import ConflictError, DeadlineError
from tpuctl.flows.hosts.bucket_access import change_metadata
from tpuctl.nodes import Change, Node, UpdateNode


class Contested(MemoryProvider):
    """One on which another client's change takes effect after ours, `times` times, so that ours is lost."""

    def __init__(self, times: int) -> None:
        super().__init__(node(metadata={"theirs": "0"}))
        self.times = times
        self.changes = 0

    def begin(self, change: Change) -> Operation:
        self.changes += 1
        if self.times:
            self.times -= 1
            self.nodes["n1"] = node(metadata={"theirs": str(self.changes)})
            return Operation("Node 'n1'", lambda: True)
        return super().begin(change)


def set_own(existing: Node) -> UpdateNode | None:
    if existing.metadata.get("own") == "1":
        return None
    return UpdateNode(existing, metadata={**existing.metadata, "own": "1"})


def test_a_node_that_needs_no_change_is_left_alone() -> None:
    provider = Contested(0)
    existing = node(metadata={"own": "1"})
    assert change_metadata(provider, existing, set_own, "to change") is existing
    assert provider.changes == 0


def test_a_change_is_made_once_and_the_node_is_returned_with_it() -> None:
    provider = Contested(0)
    changed = change_metadata(provider, node(metadata={"theirs": "0"}), set_own, "to change")
    assert changed.metadata == {"theirs": "0", "own": "1"}
    assert provider.changes == 1


def test_a_change_that_another_client_has_overwritten_is_made_again_beside_that_of_the_other(
    passing_time: PassingTime,
) -> None:
    provider = Contested(7)
    changed = change_metadata(provider, node(), set_own, "to change")
    assert changed.metadata == {"theirs": "7", "own": "1"}
    assert provider.changes == 8


def test_after_two_minutes_of_changes_by_others_it_is_an_error(passing_time: PassingTime) -> None:
    with pytest.raises(ConflictError) as error:
        change_metadata(Contested(1000), node(), set_own, "to change")
    assert error.value.message == "The metadata of 'n1' is being changed by another client."
    assert error.value.hint == "Try again."
    assert 100 < passing_time.now <= 120


def test_what_others_have_changed_since_the_node_was_read_stays() -> None:
    """`submit` reads the node, asks its user, and adds the key: meanwhile others have added theirs."""
    provider = MemoryProvider(node(metadata={"theirs": "new"}))
    changed = change_metadata(provider, node(metadata={"theirs": "old"}), set_own, "to change")
    assert changed.metadata == {"theirs": "new", "own": "1"}


def test_a_change_that_is_refused_during_another_one_is_made_again_beside_its_outcome(
    passing_time: PassingTime,
) -> None:
    class Busy(MemoryProvider):
        """Google refuses a change while another one runs, whose outcome is seen at its end."""

        refusals = 5

        def begin(self, change: Change) -> Operation:
            if self.refusals:
                self.refusals -= 1
                self.nodes["n1"] = node(metadata={"theirs": str(5 - self.refusals)})
                raise ConflictError("Node 'n1' is being changed by another request.")
            return super().begin(change)

    changed = change_metadata(Busy(node()), node(), set_own, "to change")
    assert changed.metadata == {"theirs": "5", "own": "1"}
    assert len(passing_time.pauses) == 5, "the other one takes its time"


def test_a_change_is_given_two_minutes(passing_time: PassingTime) -> None:
    class Unfinished(MemoryProvider):
        def begin(self, change: Change) -> Operation:
            return Operation("Node 'n1'", lambda: False)

    with pytest.raises(DeadlineError, match=r"^Waited 120 s for Node 'n1' to change\."):
        change_metadata(Unfinished(node()), node(), set_own, "to change")
    assert passing_time.now == pytest.approx(120)
