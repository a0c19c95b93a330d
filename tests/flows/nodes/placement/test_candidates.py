"""Tests what other commands make of candidates that are not decided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tpuctl.errors import StateError
from tpuctl.flows.nodes.lookup import find_ready
from tpuctl.nodes import Node, NodeList
from tpuctl.nodes.candidates import RACE_LABEL, race_id

A, B = "us-central1-a", "us-central1-b"


class Listed(MemoryProvider):
    """Nodes of one name in several zones."""

    def __init__(self, *nodes: Node) -> None:
        super().__init__()
        self.listed = nodes

    def list_nodes(self, zone: str | None = None) -> NodeList:
        return NodeList(tuple(item for item in self.listed if zone in (None, item.zone)))


def candidate(zone: str, race: str = "r1") -> Node:
    plain = node()
    return replace(plain, id=replace(plain.id, zone=zone), labels={**plain.labels, RACE_LABEL: race})


def test_a_run_waits_until_it_is_decided_which_candidate_stays() -> None:
    with pytest.raises(StateError, match=f"'n1' is not decided: there are candidates in {A}, {B}") as error:
        find_ready(Listed(candidate(A), candidate(B)), None, None, "ada", A)
    assert "tpuctl down n1" in error.value.hint


def test_the_only_candidate_is_used() -> None:
    assert find_ready(Listed(candidate(A)), None, None, "ada") == candidate(A)


def test_a_node_of_another_search_is_no_rival() -> None:
    assert find_ready(Listed(candidate(A), candidate(B, "r2")), None, None, "ada", A) == candidate(A)


def test_the_searches_of_one_owner_are_one_race_and_another_owners_are_not() -> None:
    assert race_id("ada") == race_id("ada") != race_id("bob")
