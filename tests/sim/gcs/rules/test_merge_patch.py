"""JSON merge patch, with the examples of RFC 7396."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.gcs.rules import merge_patch


@pytest.mark.parametrize(
    ("old", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": {"b": "c", "d": "e"}}, {"a": {"b": None}}, {"a": {"d": "e"}}),
        ({"a": "text"}, {"a": {"b": "c", "d": None}}, {"a": {"b": "c"}}),
        ({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({"a": "b"}, {"x": "y"}, {"a": "b"}),
        ({"x": "y"}, {"x": None}, {"x": "y"}),
    ],
)
def test_a_patch_is_merged(old: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]) -> None:
    """`x` cannot be set."""
    assert merge_patch(old, patch, {"a", "b"}) == merged
