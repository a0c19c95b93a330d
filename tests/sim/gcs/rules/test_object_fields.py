"""The check of an object's fields: which may be set, and which values are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import HOLDS, SETTABLE, SETTABLE_ONCE, TEXTS, checked_object_fields

UNTIL = "2030-01-01T00:00:00Z"


def test_the_fields_that_callers_may_set_are_those_of_the_api() -> None:
    """https://cloud.google.com/storage/docs/json_api/v1/objects#resource: the fields marked as writable."""
    assert {
        "acl", "cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType",
        "customTime", "eventBasedHold", "metadata", "retention", "temporaryHold",
    } == SETTABLE  # fmt: skip
    assert {"storageClass"} == SETTABLE_ONCE
    assert HOLDS == {"temporaryHold": "Temporary", "eventBasedHold": "Event-Based"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"metadata": ["a"]}, "metadata"),
        ({"metadata": {"a": "b", "c": 1}}, "metadata"),
        *(({name: value}, name) for name in sorted(TEXTS) for value in (5, "a\nb", "a\rb", None)),
        *(({name: value}, name) for name in HOLDS for value in ("true", 1, None)),
        ({"acl": {}}, "acl"),
        ({"acl": [{"entity": "", "role": "READER"}]}, "acl"),
        ({"acl": [{"entity": "allUsers", "role": ""}]}, "acl"),
        ({"retention": "Locked"}, "retention.mode"),
        ({"retention": {"retainUntilTime": UNTIL}}, "retention.mode"),
        ({"retention": {"mode": "locked", "retainUntilTime": UNTIL}}, "retention.mode"),
        ({"retention": {"mode": "Locked"}}, "retention.retainUntilTime"),
        ({"retention": {"mode": "Locked", "retainUntilTime": 5}}, "retention.retainUntilTime"),
        ({"retention": {"mode": "Unlocked", "retainUntilTime": "2030-01-01"}}, "retention.retainUntilTime"),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(GcsError) as raised:
        checked_object_fields(fields)
    assert (raised.value.status, raised.value.message) == (400, f"Invalid value for field: {field}")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"metadata": {"a": "b"}, **dict.fromkeys(TEXTS, "text")},
        {"temporaryHold": True, "eventBasedHold": False},
        {"retention": {}},
        {"retention": {"mode": "Locked", "retainUntilTime": UNTIL}},
        {"retention": {"mode": "Unlocked", "retainUntilTime": UNTIL}},
    ],
)
def test_valid_fields_stay_as_they_are(fields: dict[str, Any]) -> None:
    assert checked_object_fields(dict(fields)) == fields


def test_an_entry_of_an_acl_is_stored_by_entity_and_role() -> None:
    sent = [{"entity": "user-ada@example.com", "role": "READER", "etag": "x"}]
    assert checked_object_fields({"acl": sent}) == {
        "acl": [{"entity": "user-ada@example.com", "role": "READER"}]
    }
