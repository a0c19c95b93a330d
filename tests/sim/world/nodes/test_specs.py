"""The fields of a node that requests may set, and those that an update's mask names."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.world.api_errors import ApiError
from tpuctl.sim.world.nodes.lifecycle import changes, checked, without_external_ips

ZONE = "europe-west4-a"
NODE = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
WRITABLE = {"mode": "READ_WRITE", "sourceDisk": "d"}


@pytest.mark.parametrize(
    ("sent", "kind", "topology"),
    [
        ({"acceleratorType": "v3-32"}, "v3-32", ("V3", "4x4")),
        ({"acceleratorConfig": {"type": "V3", "topology": "4x4"}}, "v3-32", ("V3", "4x4")),
        (
            {"acceleratorType": "v2-8", "acceleratorConfig": {"type": "V3", "topology": "4x4"}},
            "v2-8",
            ("V2", "2x2"),
        ),
        ({"acceleratorConfig": {}}, "v2-8", ("V2", "2x2")),
        ({}, "v2-8", ("V2", "2x2")),
    ],
)
def test_a_node_has_a_type_and_a_topology(sent: dict[str, Any], kind: str, topology: tuple[str, str]) -> None:
    node = checked(ZONE, {"runtimeVersion": "tpu-ubuntu2204-base", **sent})
    assert node["acceleratorType"] == kind
    assert node["acceleratorConfig"] == dict(zip(("type", "topology"), topology, strict=True))


def refusal(sent: dict[str, Any], code: int = 3) -> str:
    with pytest.raises(ApiError) as raised:
        checked(ZONE, {**NODE, **sent})
    assert int(raised.value.status.code) == code
    return raised.value.status.message


def test_limits_of_a_node() -> None:
    checked(ZONE, {**NODE, "description": "x" * 512, "networkConfigs": [{}], "dataDisks": [WRITABLE]})
    assert "description has more than 512 characters" in refusal({"description": "x" * 513})
    both = {"networkConfig": {"network": "a"}, "networkConfigs": [{"network": "a"}]}
    assert "network_config and network_configs are mutually exclusive" in refusal(both)
    assert "nodes with several networks" in refusal({"networkConfigs": [{}, {}]}, code=12)
    shared = {"acceleratorType": "v3-32", "dataDisks": [{"mode": "READ_ONLY"}, WRITABLE]}
    assert "a data disk of a slice of several hosts is read-only" in refusal(shared)
    checked(ZONE, {**NODE, "acceleratorType": "v3-32", "dataDisks": [{"mode": "READ_ONLY"}]})
    assert 'key "A"' in refusal({"labels": {"A": "b"}})
    assert "V3 9x9" in refusal(
        {"acceleratorType": "", "acceleratorConfig": {"type": "V3", "topology": "9x9"}}
    )
    assert 'cannot be ""' in refusal({"runtimeVersion": ""})


SENT = {
    "description": "d",
    "labels": {"a": "b"},
    "metadata": {"c": "d"},
    "tags": ["t"],
    "dataDisks": [WRITABLE],
    "networkConfig": {"enableExternalIps": True, "network": "n"},
}
MASKED = {
    "description": ({"description": "d"}, {"description": ""}),
    "labels": ({"labels": {"a": "b"}}, {"labels": {}}),
    "metadata": ({"metadata": {"c": "d"}}, {"metadata": {}}),
    "tags": ({"tags": ["t"]}, {"tags": []}),
    "data_disks": ({"dataDisks": [WRITABLE]}, {"dataDisks": []}),
    "network_config.enable_external_ips": (
        {"networkConfig": {"enableExternalIps": True}},
        {"networkConfig": {"enableExternalIps": False}},
    ),
}
"""Path in a mask -> the new values, if they are sent and if they are not."""


@pytest.mark.parametrize("path", MASKED)
def test_an_update_changes_what_its_mask_names(path: str) -> None:
    assert changes(SENT, [path], hosts=1) == MASKED[path][0]
    assert changes({}, [path], hosts=1) == MASKED[path][1]


def test_an_update_of_several_fields() -> None:
    assert changes(SENT, ["tags", "labels"], hosts=1) == {"tags": ["t"], "labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("mask", "paths"),
    [([], "it is empty"), (["state"], "state"), (["tags", "name", "labels.a"], "name, labels.a")],
)
def test_a_mask_names_what_can_be_changed(mask: list[str], paths: str) -> None:
    with pytest.raises(ApiError) as raised:
        changes(SENT, mask, hosts=1)
    assert raised.value.status.message == (
        f"Invalid update_mask: {paths}. Fields that can be updated: description, labels, metadata, tags, "
        "data_disks, network_config.enable_external_ips."
    )


def test_an_update_is_checked_as_a_new_node_is() -> None:
    changes(SENT, ["data_disks"], hosts=1)
    with pytest.raises(ApiError, match="read-only"):
        changes(SENT, ["data_disks"], hosts=2)
    with pytest.raises(ApiError, match="512 characters"):
        changes({"description": "x" * 513}, ["description"], hosts=1)
    with pytest.raises(ApiError, match="labels are invalid"):
        changes({"labels": {"A": "b"}}, ["labels"], hosts=1)


def test_a_network_without_external_addresses_gives_none() -> None:
    fields = {"networkConfig": {"network": "n", "enableExternalIps": True}, "tags": ["t"]}
    assert without_external_ips(fields) == {
        "networkConfig": {"network": "n", "enableExternalIps": False},
        "tags": ["t"],
    }
    assert without_external_ips({"networkConfigs": [{"network": "n", "enableExternalIps": True}]}) == {
        "networkConfigs": [{"network": "n", "enableExternalIps": False}]
    }
    assert without_external_ips({"tags": ["t"]}) == {"tags": ["t"]}
