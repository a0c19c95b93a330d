"""Reading JSON by type: a value of another type counts as absent, a text that is no object is an error."""

from __future__ import annotations

import pytest

from tpuctl.sim.json_values import JsonObject, object_at, objects_at, parse_object, text_at

NODE: JsonObject = {"name": "n", "labels": {"team": "a"}, "disks": [{"id": 1}, "text", {"id": 2}], "count": 3}


@pytest.mark.parametrize("text", ["[]", "null", "7", '"text"', "{", "", "[" * 100_000])
def test_what_is_no_object_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json.loads words its own
        parse_object(text)


def test_an_object_is_read() -> None:
    assert parse_object(b'{"a": [1, null]}') == {"a": [1, None]}


def test_values_are_read_by_type() -> None:
    assert object_at(NODE, "labels") == {"team": "a"}
    assert objects_at(NODE, "disks") == [{"id": 1}, {"id": 2}]
    assert text_at(NODE, "name") == "n"


@pytest.mark.parametrize("name", ["count", "absent"])
def test_a_value_of_another_type_counts_as_absent(name: str) -> None:
    assert (object_at(NODE, name), objects_at(NODE, name), text_at(NODE, name, "-")) == ({}, [], "-")
