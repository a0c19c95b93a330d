"""The whole content of a TPU VM's metadata server, as text and as JSON, and facts that a host publishes."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpuctl.accelerators import accelerator
from tpuctl.sim.hosts.metadata.server import (
    GuestAttributes,
    Instance,
    as_json,
    client_machine_tree,
    etag,
    flat,
    host_bounds,
    is_directory,
    listing,
    metadata_tree,
    text,
    walk,
)
from tpuctl.sim.records import GuestAttribute, Host, Notices
from tpuctl.sim.token_server import project_number, service_account, stable_number

ZONE = "projects/p/locations/us-central2-b"
HOST = Host(
    node=f"{ZONE}/nodes/n1",
    node_uid="77",
    worker=1,
    address="127.77.0.2",
    hostname="t1v-n-0000004d-w-1",
    accelerator_type="v4-16",
    runtime_version="tpu-ubuntu2204-base",
    peers=("127.77.0.1", "127.77.0.2"),
    preemptible=False,
)
NUMBER = project_number("p")
ACCOUNT = service_account("p")
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


def accounts(email: str) -> dict[str, object]:
    account = {"aliases": ["default"], "email": email, "scopes": SCOPES}
    return {"default": account, email: account}


def tpu_env(host: Host) -> dict[str, str]:
    """Return the variables in the attribute `tpu-env` of a host."""
    tree: Any = metadata_tree(Instance(host))
    pairs = (line.split(": ", 1) for line in tree["instance"]["attributes"]["tpu-env"].splitlines())
    return {name: value[1:-1] for name, value in pairs if value[0] == value[-1] == "'"}


def test_the_tree_of_a_host() -> None:
    instance = Instance(HOST, {"ssh-keys": "ada:key"}, {"enable-oslogin": "FALSE"})
    tree: Any = metadata_tree(instance)
    env = tree["instance"]["attributes"].pop("tpu-env")
    assert env.startswith("ACCELERATOR_TYPE: 'v4-16'\n")
    assert tree == {
        "instance": {
            "attributes": {
                "ssh-keys": "ada:key",
                "accelerator-type": "v4-16",
                "agent-worker-number": "1",
                "instance-id": "n1",
                "worker-network-endpoints": "unknown:unknown:127.77.0.1,unknown:unknown:127.77.0.2",
            },
            "cpu-platform": "AMD Rome",
            "description": "",
            "hostname": "t1v-n-0000004d-w-1.us-central2-b.c.p.internal",
            "id": stable_number("77/1"),
            "image": "",
            "machine-type": f"projects/{NUMBER}/machineTypes/n2d-48-24-v2-tpu",
            "maintenance-event": "NONE",
            "name": "t1v-n-0000004d-w-1",
            "network-interfaces": [
                {
                    "access-configs": [{"external-ip": "127.77.0.2", "type": "ONE_TO_ONE_NAT"}],
                    "ip": "127.77.0.2",
                    "mac": "42:01:7f:4d:00:02",
                    "network": f"projects/{NUMBER}/networks/default",
                }
            ],
            "preempted": "FALSE",
            "scheduling": {
                "automatic-restart": "TRUE",
                "on-host-maintenance": "TERMINATE",
                "preemptible": "FALSE",
            },
            "service-accounts": accounts(ACCOUNT),
            "tags": [],
            "zone": f"projects/{NUMBER}/zones/us-central2-b",
        },
        "project": {
            "attributes": {"enable-oslogin": "FALSE"},
            "numeric-project-id": NUMBER,
            "project-id": "p",
        },
        "universe": {"universe-domain": "googleapis.com"},
    }


def test_a_spot_host_without_an_external_address_that_is_preempted() -> None:
    host = replace(HOST, preemptible=True, external=False, named_account="job@p.iam.gserviceaccount.com")
    notices = Notices(preempted=True, maintenance_event="TERMINATE_ON_HOST_MAINTENANCE")
    tree: Any = metadata_tree(Instance(host, notices=notices))
    instance = tree["instance"]
    assert instance["scheduling"] == {
        "automatic-restart": "FALSE",
        "on-host-maintenance": "TERMINATE",
        "preemptible": "TRUE",
    }
    assert (instance["preempted"], instance["maintenance-event"]) == ("TRUE", "TERMINATE_ON_HOST_MAINTENANCE")
    assert instance["network-interfaces"][0]["access-configs"] == []
    assert instance["service-accounts"] == accounts("job@p.iam.gserviceaccount.com")


def test_the_environment_of_a_slice() -> None:
    assert tpu_env(HOST) == {
        "ACCELERATOR_TYPE": "v4-16",
        "CHIPS_PER_HOST_BOUNDS": "2,2,1",
        "CONSUMER_PROJECT_ID": "p",
        "HOST_BOUNDS": "1,1,2",
        "NODE_ID": "n1",
        "PREEMPTIBLE": "false",
        "RUNTIME_VERSION": "tpu-ubuntu2204-base",
        "TOPOLOGY": "2x2x2",
        "TYPE": "V4",
        "WORKER_ID": "1",
        "ZONE": "us-central2-b",
    }
    assert tpu_env(replace(HOST, preemptible=True))["PREEMPTIBLE"] == "true"
    assert tpu_env(replace(HOST, accelerator_type="v5litepod-8"))["TYPE"] == "V5LITE_POD"


def test_slices_that_belong_together_know_each_other() -> None:
    host = replace(HOST, slices=("127.77.0.9", "127.77.0.1", "127.77.0.5"))
    megascale = {name: value for name, value in tpu_env(host).items() if name.startswith("MEGASCALE_")}
    assert megascale == {
        "MEGASCALE_COORDINATOR_ADDRESS": "127.77.0.9",
        "MEGASCALE_NUM_SLICES": "3",
        "MEGASCALE_SLICE_ID": "1",
    }


@pytest.mark.parametrize(
    ("kind", "chips", "hosts"),
    [
        ("v2-8", "2,2,1", (1, 1, 1)),
        ("v3-32", "2,2,1", (2, 2, 1)),
        ("v4-32", "2,2,1", (1, 1, 4)),
        ("v5litepod-1", "1,1,1", (1, 1, 1)),
        ("v5litepod-8", "2,4,1", (1, 1, 1)),
        ("v5litepod-16", "2,2,1", (2, 2, 1)),
        ("v6e-8", "2,4,1", (1, 1, 1)),
    ],
)
def test_hosts_and_their_chips_fill_the_topology(kind: str, chips: str, hosts: tuple[int, ...]) -> None:
    assert host_bounds(accelerator(kind)) == hosts
    env = tpu_env(replace(HOST, accelerator_type=kind))
    assert (env["CHIPS_PER_HOST_BOUNDS"], env["HOST_BOUNDS"]) == (chips, ",".join(map(str, hosts)))


def test_a_machine_outside_the_slices_has_the_projects_account() -> None:
    assert client_machine_tree("p") == {
        "instance": {"attributes": {}, "service-accounts": accounts(ACCOUNT), "tags": []},
        "project": {"attributes": {}, "numeric-project-id": NUMBER, "project-id": "p"},
        "universe": {"universe-domain": "googleapis.com"},
    }


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


@pytest.fixture
def guest(tmp_path: Path) -> GuestAttributes:
    return GuestAttributes(tmp_path / "guest.json")


def test_attributes_are_kept_in_a_private_file_in_the_order_of_writing(
    guest: GuestAttributes, tmp_path: Path
) -> None:
    assert (guest.tree(), guest.items()) == ({}, [])
    for namespace, key, value in (("b", "2", "x"), ("a", "1", "y"), ("b", "1", "z"), ("b", "2", "w")):
        guest.put(namespace, key, value)
    assert guest.items() == [
        GuestAttribute("b", "2", "w"),
        GuestAttribute("b", "1", "z"),
        GuestAttribute("a", "1", "y"),
    ]
    path = tmp_path / "guest.json"
    assert json.loads(path.read_text()) == {"b": {"2": "w", "1": "z"}, "a": {"1": "y"}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert GuestAttributes(path).tree() == guest.tree()


def test_what_is_published_takes_the_place_of_its_namespaces_alone(guest: GuestAttributes) -> None:
    guest.put("hostkeys", "ssh-rsa", "old")
    guest.put("run", "state", "READY")
    guest.publish({"hostkeys": {"ssh-ed25519": "new"}, "guestInventory": {"Hostname": "h"}})
    assert guest.tree() == {
        "hostkeys": {"ssh-ed25519": "new"},
        "run": {"state": "READY"},
        "guestInventory": {"Hostname": "h"},
    }


def test_a_namespace_goes_with_its_last_attribute(guest: GuestAttributes) -> None:
    for key in ("state", "step"):
        guest.put("run", key, "")
    assert [guest.delete("run", "none"), guest.delete("none", "state")] == [False, False]
    assert guest.delete("run", "state")
    assert guest.tree() == {"run": {"step": ""}}
    assert guest.delete("run", "step")
    assert not guest.delete("run", "step")
    assert guest.tree() == {}
