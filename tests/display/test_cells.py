"""Tests how values of records are said in tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tpuctl.display.cells import MOST_CHARACTERS, cell, state
from tpuctl.display.markup import DOTS, Coloured
from tpuctl.nodes import NodeState, QueueState


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ended", None, ""),
        ("ended", datetime(2026, 1, 31, 23, 59, tzinfo=UTC), "2026-01-31T23:59:00Z"),
        ("duration", timedelta(seconds=90.6), "1m31s"),
        ("spot", True, "yes"),
        ("spot", False, ""),
        ("image", (b"\xff\xd8" * 800,), "1,600 bytes"),
        ("text", (b"a", "b"), "a, b"),
        ("values", {"label": (0,), "text": (b"cat",)}, "label=0, text=cat"),
        ("text", "x" * 1_000_000, "x" * MOST_CHARACTERS + "..."),
        ("splits", ("train", "test"), "train, test"),
        ("tags", {"team": "vision", "keep": ""}, "team=vision, keep"),
        ("seconds", 5400.4, "1h30m"),
        ("records", 12, 12),
        ("bytes", 1_250_000, "1.2 MB"),
        ("bytes", "of a later version", "of a later version"),
        ("bytes", 1.5, 1.5),
        ("records", 1.5, 1.5),
        ("size", 1_250_000, 1_250_000),
        ("seconds", 90, "1m30s"),
        ("setup_seconds", 0, "0s"),
        ("seconds", None, ""),
        ("seconds", True, "yes"),
        ("text", "x" * (MOST_CHARACTERS + 1), "x" * MOST_CHARACTERS + "..."),
        ("text", "x" * MOST_CHARACTERS, "x" * MOST_CHARACTERS),
        ("text", b"\xff" * 3, "3 bytes"),
        ("text", b"", ""),
        ("splits", (), ""),
        ("splits", ["test"], "test"),
        ("splits", frozenset({"test"}), "test"),
        ("values", {}, ""),
        ("values", {"none": None, 1: 0}, "none, 1=0"),
        ("values", {"nested": {"a": [1, 2]}}, "nested=a=1, 2"),
    ],
)
def test_values_are_said_as_people_read_them(name: str, value: object, text: object) -> None:
    assert cell(name, value) == text


@pytest.mark.parametrize(
    ("text", "colour"),
    [("READY", "green"), ("failed", "red"), ("CREATING", "amber"), ("of a later version", "grey")],
)
def test_a_state_has_its_colour(text: str, colour: str) -> None:
    assert state(text).colour == colour
    assert state(text) == text


@pytest.mark.parametrize("name", ["state", "outcome"])
@pytest.mark.parametrize("value", ["READY", NodeState.READY])
def test_a_field_that_is_a_state_has_its_colour(name: str, value: object) -> None:
    shown = cell(name, value)
    assert isinstance(shown, Coloured)
    assert (str(shown), shown.colour) == ("READY", "green")
    assert not isinstance(cell("node", value), Coloured)


@pytest.mark.parametrize(
    ("colour", "states"),
    [
        ("green", (QueueState.ACTIVE, "running", "succeeded")),
        ("red", (QueueState.SUSPENDED, QueueState.FAILED, NodeState.PREEMPTED, "lost", "preempted")),
        ("amber", (QueueState.WAITING, QueueState.PROVISIONING, QueueState.SUSPENDING, QueueState.DELETING)),
        ("amber", (NodeState.CREATING, NodeState.STARTING, NodeState.STOPPING, NodeState.REPAIRING)),
        ("amber", ("maintenance", "stopped", "queued", "preparing")),
        ("grey", (NodeState.GONE, NodeState.UNKNOWN, "")),
    ],
)
def test_what_works_is_green_what_failed_red_and_what_changes_amber(
    colour: str, states: tuple[str, ...]
) -> None:
    assert {state(str(text)).colour for text in states} == {colour}
    assert colour in DOTS


def test_no_text_of_a_cell_is_longer_than_a_few_lines() -> None:
    assert 100 <= MOST_CHARACTERS <= 1000
