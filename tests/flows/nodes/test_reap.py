"""Tests which TPUs count as used by nobody: what is not known of one is no reason to delete it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tpuctl import clock
from tpuctl.flows.nodes.reap import Disuse, plan_reap
from tpuctl.keeper import records
from tpuctl.nodes import Node

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
