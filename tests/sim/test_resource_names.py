"""Full resource names, taken apart."""

from __future__ import annotations

import pytest

from tpuctl.sim.resource_names import ResourceName, parse


def test_a_full_name_has_four_parts() -> None:
    name = parse("projects/p/locations/z/nodes/n")
    assert name == ResourceName("p", "z", "nodes", "n")
    assert name.parent == "projects/p/locations/z"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("projects/p", ResourceName("p")),
        ("projects/p/locations/-", ResourceName("p", "-")),
        ("projects/p/locations/z/operations", ResourceName("p", "z", "operations")),
    ],
)
def test_parts_that_a_name_lacks_are_empty(text: str, name: ResourceName) -> None:
    assert parse(text) == name


@pytest.mark.parametrize("text", ["", "nodes/n", "projects/", "project/p", "projects/p/zones/z"])
def test_other_texts_are_no_names(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a resource"):
        parse(text)
