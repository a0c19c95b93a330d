"""Resource names, both ways."""

from __future__ import annotations

import pytest

from tpuctl.cloud.tpu.rules import location, node_name, parse_node_name, zone_of
from tpuctl.nodes import NodeId

NODE_ID = NodeId("cloud-tpu", "p", "us-east1-d", "n1", "7")
NAME = "projects/p/locations/us-east1-d/nodes/n1"


def test_a_name_is_rendered_and_parsed() -> None:
    assert node_name(NODE_ID) == NAME
    assert parse_node_name(NAME, "7") == NODE_ID


@pytest.mark.parametrize("name", ["", "n1", "projects/p/zones/z/nodes/n1", f"{NAME}/x", f"/{NAME}"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a node"):
        parse_node_name(name, "7")


@pytest.mark.parametrize("name", [location("p", "us-east1-d"), "us-east1-d"])
def test_a_location_has_a_zone(name: str) -> None:
    assert zone_of(name) == "us-east1-d"
