"""Values and directories of the metadata server, as text and as JSON, with the names that Google writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tpuctl.sim.hosts.metadata.server import as_json, etag, flat, is_directory, listing, text, walk

TREE: dict[str, Any] = {
    "instance": {
        "attributes": {"ssh-keys": "k", "my-own-Name": "v"},
        "machine-type": "m",
        "id": 7,
        "network-interfaces": [{"access-configs": [{"external-ip": "e"}], "ip": "1"}, {"ip": "2"}],
        "service-accounts": {"a-b@c-d": {"aliases": ["default", "other"]}},
        "tags": [],
    }
}


@pytest.mark.parametrize(
    ("names", "value"),
    [
        ([], TREE),
        (["instance", "id"], 7),
        (["instance", "network-interfaces", "1", "ip"], "2"),
        (["instance", "network-interfaces", "0", "access-configs", "0", "external-ip"], "e"),
        (["instance", "tags"], []),
    ],
)
def test_a_path_leads_to_a_value(names: list[str], value: Any) -> None:
    assert walk(TREE, names) == value


@pytest.mark.parametrize(
    "names",
    [["none"], ["instance", "id", "x"], ["instance", "tags", "0"], ["instance", "network-interfaces", "2"]],
)
def test_other_paths_lead_nowhere(names: list[str]) -> None:
    with pytest.raises(KeyError):
        walk(TREE, names)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, True),
        ({"a": 1}, True),
        ([{"a": 1}], True),
        ([], False),
        (["a"], False),
        ("a", False),
        (1, False),
        (["a", {}], True),
    ],
)
def test_what_has_entries_is_a_directory(node: Any, expected: bool) -> None:
    assert is_directory(node) is expected


def test_a_directory_lists_its_entries() -> None:
    assert listing(TREE) == "instance/\n"
    assert listing(TREE["instance"]) == (
        "attributes/\nmachine-type\nid\nnetwork-interfaces/\nservice-accounts/\ntags\n"
    )
    assert listing(TREE["instance"]["network-interfaces"]) == "0/\n1/\n"


def test_a_directory_as_text() -> None:
    assert flat(TREE["instance"]) == (
        "attributes/ssh-keys k\n"
        "attributes/my-own-Name v\n"
        "machine-type m\n"
        "id 7\n"
        "network-interfaces/0/access-configs/0/external-ip e\n"
        "network-interfaces/0/ip 1\n"
        "network-interfaces/1/ip 2\n"
        "service-accounts/a-b@c-d/aliases default\nother\n"
        "tags \n"
    )
    assert (text(["a", "b"]), text(7), text("x"), text([])) == ("a\nb", "7", "x", "")


def test_a_directory_as_json_has_googles_names() -> None:
    assert json.loads(as_json(TREE, [])) == {
        "instance": {
            "attributes": {"ssh-keys": "k", "my-own-Name": "v"},
            "machineType": "m",
            "id": 7,
            "networkInterfaces": [{"accessConfigs": [{"externalIp": "e"}], "ip": "1"}, {"ip": "2"}],
            "serviceAccounts": {"a-b@c-d": {"aliases": ["default", "other"]}},
            "tags": [],
        }
    }


@pytest.mark.parametrize("place", ["attributes", "guest-attributes"])
def test_names_that_are_the_users_stay_as_they_are(place: str) -> None:
    own = {"my-namespace": {"my-key": "v"}}
    assert json.loads(as_json(own, ["instance", place])) == own
    assert json.loads(as_json({place: own}, ["instance"])).popitem()[1] == own
    assert json.loads(as_json(own, ["instance"])) == {"myNamespace": {"myKey": "v"}}


def test_a_tag_is_that_of_the_content() -> None:
    assert etag({"a": 1, "b": 2}) == etag({"b": 2, "a": 1})
    assert len({etag(value) for value in ({"a": 1}, {"a": 2}, {"b": 1}, "a", ["a"], 1, "1")}) == 7
    assert len(etag("a")) == 16
