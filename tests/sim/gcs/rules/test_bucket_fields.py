"""The check of a bucket's fields and of its lifecycle rules, and JSON merge patch."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import merge_patch
from tpuctl.sim.gcs.storage.buckets import (
    SETTABLE,
    SETTABLE_ONCE,
    check_lifecycle,
    check_retention_change,
    checked_bucket_fields,
    refuse_unsupported,
    with_autoclass_times,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"lifecycle": {"rule": [{"action": {"type": "Explode"}, "condition": {"age": 1}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": "old"}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"createdBefore": "x"}}]}},
        {"lifecycle": {"rule": [5]}},
        {"softDeletePolicy": {"retentionDurationSeconds": "5"}},
        {"softDeletePolicy": {"retentionDurationSeconds": "soon"}},
        {"retentionPolicy": {"retentionPeriod": "-1"}},
        {"acl": [{"entity": 5, "role": "OWNER"}]},
        {"acl": ["x"]},
    ],
)
def test_an_invalid_field_is_refused(
    gcs: RunningGcs, http: requests.Session, changes: dict[str, object]
) -> None:
    url = f"{gcs.url}/storage/v1/b/{BUCKET}"
    assert http.patch(url, json=changes).status_code == 400
    assert http.get(url).json()["metageneration"] == "1"


DAY = 86400
CENTURY = 3_155_760_000


def test_the_fields_that_callers_may_set_are_those_of_the_api() -> None:
    """https://cloud.google.com/storage/docs/json_api/v1/buckets#resource: the fields marked as writable."""
    assert {
        "acl", "autoclass", "billing", "cors", "defaultEventBasedHold", "defaultObjectAcl", "encryption",
        "iamConfiguration", "labels", "lifecycle", "logging", "retentionPolicy", "rpo", "softDeletePolicy",
        "storageClass", "versioning", "website",
    } == SETTABLE  # fmt: skip
    assert {"location", "customPlacementConfig", "hierarchicalNamespace", "objectRetention"} == SETTABLE_ONCE


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        *(
            ({name: value}, name)
            for name in (
                "autoclass", "billing", "encryption", "hierarchicalNamespace", "iamConfiguration", "labels",
                "lifecycle", "logging", "retentionPolicy", "softDeletePolicy", "versioning", "website",
            )
            for value in ("text", [], 5, None)
        ),
        *(({name: value}, name) for name in ("location", "rpo", "storageClass") for value in ({}, 5, None)),
        *(({name: value}, name) for name in ("acl", "cors", "defaultObjectAcl") for value in ({}, "x")),
        ({"labels": {"a": "b", "c": 5}}, "labels"),
        ({"iamConfiguration": {"publicAccessPrevention": "on"}}, "iamConfiguration.publicAccessPrevention"),
        *(
            ({"retentionPolicy": {"retentionPeriod": period}}, "retentionPolicy.retentionPeriod")
            for period in ("0", "", "-1", "1.5", "soon", CENTURY + 1, "1" * 13)
        ),
        ({"retentionPolicy": {}}, "retentionPolicy.retentionPeriod"),
        *(
            (
                {"softDeletePolicy": {"retentionDurationSeconds": seconds}},
                "softDeletePolicy.retentionDurationSeconds",
            )
            for seconds in (1, 7 * DAY - 1, 90 * DAY + 1, "x", "")
        ),
        ({"acl": [{"entity": "allUsers"}]}, "acl"),
        ({"defaultObjectAcl": [{"role": "READER"}]}, "acl"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(GcsError) as raised:
        checked_bucket_fields(fields)
    assert (raised.value.status, raised.value.message) == (400, f"Invalid value for field: {field}")


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {"a": "b"}, "location": "EU", "rpo": "DEFAULT", "cors": []},
        {"iamConfiguration": {"publicAccessPrevention": "enforced"}},
        {"iamConfiguration": {"publicAccessPrevention": "inherited"}},
        {"iamConfiguration": {"publicAccessPrevention": "unspecified"}},
        {"acl": [{"entity": "allUsers", "role": "READER"}]},
    ],
)
def test_valid_fields_stay_as_they_are(fields: dict[str, Any]) -> None:
    assert checked_bucket_fields(dict(fields)) == fields


@pytest.mark.parametrize("period", [1, 60, CENTURY])
def test_a_retention_policy_is_stored_with_its_time(period: int) -> None:
    (policy,) = checked_bucket_fields({"retentionPolicy": {"retentionPeriod": period}}).values()
    assert isinstance(policy, dict)
    effective = policy.pop("effectiveTime")
    assert policy == {"retentionPeriod": str(period), "isLocked": False}
    again = {"retentionPeriod": str(period), "effectiveTime": effective, "isLocked": True}
    assert checked_bucket_fields({"retentionPolicy": dict(again)}) == {"retentionPolicy": again}


@pytest.mark.parametrize("seconds", [0, 7 * DAY, 90 * DAY])
def test_a_soft_delete_policy_is_off_or_lasts_a_week_to_ninety_days(seconds: int) -> None:
    (policy,) = checked_bucket_fields({"softDeletePolicy": {"retentionDurationSeconds": seconds}}).values()
    assert isinstance(policy, dict)
    effective = policy["effectiveTime"]
    assert policy == {"retentionDurationSeconds": str(seconds), "effectiveTime": effective}
    assert checked_bucket_fields({"softDeletePolicy": dict(policy)}) == {"softDeletePolicy": policy}


@pytest.mark.parametrize(
    ("locked", "period", "refused"),
    [(True, "59", True), (True, "60", False), (True, "61", False), (True, None, True), (False, "1", False)],
)
def test_a_locked_policy_only_grows(locked: bool, period: str | None, refused: bool) -> None:
    old = {"retentionPolicy": {"retentionPeriod": "60", "isLocked": locked}}
    new = {"retentionPolicy": {"retentionPeriod": period}} if period else {}
    if not refused:
        check_retention_change(old, new)
        return
    with pytest.raises(GcsError, match="Cannot reduce retention duration") as raised:
        check_retention_change(old, new)
    assert raised.value.status == 403


def test_autoclass_has_times_of_what_changed() -> None:
    assert with_autoclass_times({"labels": {}}, {}) == {"labels": {}}
    first: Any = with_autoclass_times({"autoclass": {"enabled": True}}, {})["autoclass"]
    assert set(first) == {"enabled", "toggleTime", "terminalStorageClass", "terminalStorageClassUpdateTime"}
    assert (first["enabled"], first["terminalStorageClass"]) == (True, "NEARLINE")
    assert with_autoclass_times({"autoclass": first}, {"autoclass": first}) == {"autoclass": first}
    off: Any = with_autoclass_times({"autoclass": {"enabled": False}}, {})["autoclass"]
    assert set(off) == {"enabled", "toggleTime"}
    archive = {"enabled": True, "terminalStorageClass": "ARCHIVE"}
    changed: Any = with_autoclass_times({"autoclass": archive}, {"autoclass": first})["autoclass"]
    assert set(changed) == {"enabled", "terminalStorageClass", "terminalStorageClassUpdateTime"}


def test_what_is_switched_off_may_be_sent() -> None:
    refuse_unsupported({"hierarchicalNamespace": {"enabled": False}, "ipFilter": {"mode": ""}})
    with pytest.raises(GcsError, match="has no ipFilter of buckets") as raised:
        refuse_unsupported({"ipFilter": {"mode": "Disabled"}})
    assert raised.value.status == 501


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
