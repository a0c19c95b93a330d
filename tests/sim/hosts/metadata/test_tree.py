"""The whole content of a TPU VM's metadata server, as Compute Engine documents it and resolvers read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tpuctl.accelerators import accelerator
from tpuctl.sim.hosts.metadata.server import Instance, client_machine_tree, host_bounds, metadata_tree
from tpuctl.sim.records import Host, Notices
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
