"""Which lifecycle rules are valid: https://cloud.google.com/storage/docs/lifecycle."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.storage.buckets import check_lifecycle

DELETE = {"type": "Delete"}
BAD_ACTION = "Invalid value for field: lifecycle.rule.action"
NO_CONDITION = "A lifecycle rule must have at least one condition."
COUNTS = ("age", "daysSinceCustomTime", "daysSinceNoncurrentTime", "numNewerVersions")
DATES = ("createdBefore", "customTimeBefore", "noncurrentTimeBefore")
LISTS = ("matchesPrefix", "matchesSuffix", "matchesStorageClass")
VALID: list[tuple[str, Any]] = [
    *((name, value) for name in COUNTS for value in (0, 1, 10_000)),
    *((name, "2024-02-29") for name in DATES),
    *((name, value) for name in LISTS for value in ([], ["a", "b"])),
    ("isLive", True),
    ("isLive", False),
]
INVALID: list[tuple[str, Any]] = [
    *((name, value) for name in COUNTS for value in (-1, True, "1", 1.5, None)),
    *((name, value) for name in DATES for value in ("2023-02-29", "2024-02-29T00:00:00Z", 5, None)),
    *((name, value) for name in LISTS for value in ("a", ["a", 1], None)),
    ("isLive", 1),
    ("isLive", "true"),
    ("isLive", None),
    ("colour", 1),
]


@pytest.mark.parametrize(("name", "value"), VALID)
def test_a_condition_is_valid(name: str, value: Any) -> None:
    check_lifecycle({"rule": [{"action": DELETE, "condition": {name: value}}]})


@pytest.mark.parametrize(("name", "value"), INVALID)
def test_a_condition_is_refused_by_its_name(name: str, value: Any) -> None:
    rule = {"action": DELETE, "condition": {"age": 1, name: value}}
    with pytest.raises(GcsError, match=rf"^Invalid value for field: lifecycle\.rule\.condition\.{name}$"):
        check_lifecycle({"rule": [rule]})


@pytest.mark.parametrize("action", ["Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"])
def test_an_action_is_valid(action: str) -> None:
    check_lifecycle({"rule": [{"action": {"type": action}, "condition": {"age": 1}}]})


@pytest.mark.parametrize(
    ("lifecycle", "message"),
    [
        ({"rule": {}}, "Invalid value for field: lifecycle.rule"),
        ({"rule": [5]}, BAD_ACTION),
        ({"rule": [{"condition": {"age": 1}}]}, BAD_ACTION),
        ({"rule": [{"action": "Delete", "condition": {"age": 1}}]}, BAD_ACTION),
        ({"rule": [{"action": {"type": "delete"}, "condition": {"age": 1}}]}, BAD_ACTION),
        ({"rule": [{"action": DELETE}]}, NO_CONDITION),
        ({"rule": [{"action": DELETE, "condition": {}}]}, NO_CONDITION),
        ({"rule": [{"action": DELETE, "condition": [1]}]}, NO_CONDITION),
        ({"rule": [{"action": DELETE, "condition": {"age": 1}}, 5]}, BAD_ACTION),
    ],
)  # fmt: skip
def test_a_rule_needs_an_action_and_a_condition(lifecycle: dict[str, Any], message: str) -> None:
    with pytest.raises(GcsError) as raised:
        check_lifecycle(lifecycle)
    assert (raised.value.status, raised.value.message) == (400, message)


@pytest.mark.parametrize("lifecycle", [{}, {"rule": []}])
def test_no_rules_are_valid(lifecycle: dict[str, Any]) -> None:
    check_lifecycle(lifecycle)
