"""Tests how values of records are said in tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tpuctl.display.cells import MOST_CHARACTERS, cell, state


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
    assert cell("state", text) == text
