"""Builds the content of a TPU VM's metadata server: the tree below `/computeMetadata/v1`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpuctl.accelerators import Accelerator, accelerator
from tpuctl.sim.accounts import project_number, service_account, stable_number
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.records import Host, Notices

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
CHIP_GRIDS = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
"""Chips of a host -> their layout."""
GENERATION_TYPES = {"v5e": "V5LITE_POD"}
"""AcceleratorConfig.Type where it is not the generation's own name."""


@dataclass(frozen=True)
class Instance:
    """A host and its metadata."""

    host: Host
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The node's own metadata, `ssh-keys` and the user's keys."""
    project_metadata: Mapping[str, str] = field(default_factory=dict)
    """That of all instances of the project."""
    notices: Notices = field(default_factory=Notices)


def metadata_tree(instance: Instance) -> JsonObject:
    """Return the tree: dicts and lists of dicts are directories, all else is a value.

    Names and shapes: Compute Engine's metadata documentation; the attributes of a TPU VM as TensorFlow's and
    JAX's cluster resolvers read them.
    """
    return {"instance": _instance(instance), **_project(instance.host.project, instance.project_metadata)}


def client_machine_tree(project: str) -> JsonObject:
    """Return the tree of a machine outside the slices, where Google's clients find credentials."""
    return {
        "instance": {"attributes": {}, "service-accounts": _accounts(service_account(project)), "tags": []},
        **_project(project, {}),
    }


def _instance(instance: Instance) -> JsonObject:
    host, number = instance.host, project_number(instance.host.project)
    preemptible = host.preemptible
    return {
        "attributes": {**instance.metadata, **_tpu_attributes(host)},
        "cpu-platform": "AMD Rome",
        "description": "",
        "hostname": f"{host.hostname}.{host.zone}.c.{host.project}.internal",
        "id": stable_number(f"{host.node_uid}/{host.worker}"),
        "image": "",
        "machine-type": f"projects/{number}/machineTypes/n2d-48-24-v2-tpu",
        "maintenance-event": instance.notices.maintenance_event,
        "name": host.hostname,
        "network-interfaces": [_network_interface(host, number)],
        "preempted": _upper(instance.notices.preempted),
        "scheduling": {
            "automatic-restart": _upper(not preemptible),
            "on-host-maintenance": "TERMINATE",
            "preemptible": _upper(preemptible),
        },
        "service-accounts": _accounts(host.service_account),
        "tags": [],
        "zone": f"projects/{number}/zones/{host.zone}",
    }


def _tpu_attributes(host: Host) -> dict[str, str]:
    return {
        "accelerator-type": host.accelerator_type,
        "agent-worker-number": str(host.worker),
        "instance-id": host.node_id,
        "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in _tpu_env(host).items()),
        "worker-network-endpoints": ",".join(f"unknown:unknown:{address}" for address in host.peers),
    }


def _tpu_env(host: Host) -> dict[str, str]:
    """The variables in which libtpu and JAX find the shape of the slice."""
    kind = accelerator(host.accelerator_type)
    return {
        "ACCELERATOR_TYPE": host.accelerator_type,
        "CHIPS_PER_HOST_BOUNDS": _comma(CHIP_GRIDS[kind.chips_per_host]),
        "CONSUMER_PROJECT_ID": host.project,
        "HOST_BOUNDS": _comma(host_bounds(kind)),
        "NODE_ID": host.node_id,
        "PREEMPTIBLE": str(host.preemptible).lower(),
        "RUNTIME_VERSION": host.runtime_version,
        "TOPOLOGY": kind.topology,
        "TYPE": GENERATION_TYPES.get(kind.generation, kind.generation.upper()),
        "WORKER_ID": str(host.worker),
        "ZONE": host.zone,
        **_megascale(host),
    }


def _megascale(host: Host) -> dict[str, str]:
    """The variables by which slices find each other; JAX's coordinator is the same host."""
    if not host.slices:
        return {}
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": host.slices[0],
        "MEGASCALE_NUM_SLICES": str(len(host.slices)),
        "MEGASCALE_SLICE_ID": str(host.slices.index(host.peers[0])),
    }


def host_bounds(kind: Accelerator) -> tuple[int, ...]:
    """Return the layout of a slice's hosts in three dimensions."""
    chips = ([int(side) for side in kind.topology.split("x")] + [1])[:3]
    return tuple(side // own for side, own in zip(chips, CHIP_GRIDS[kind.chips_per_host], strict=True))


def _network_interface(host: Host, number: int) -> JsonObject:
    return {
        "access-configs": [{"external-ip": host.address, "type": "ONE_TO_ONE_NAT"}] if host.external else [],
        "ip": host.address,
        "mac": "42:01:" + ":".join(f"{int(part):02x}" for part in host.address.split(".")),
        "network": f"projects/{number}/networks/default",
    }


def _project(project: str, metadata: Mapping[str, str]) -> JsonObject:
    return {
        "project": {
            "attributes": dict(metadata),
            "numeric-project-id": project_number(project),
            "project-id": project,
        },
        "universe": {"universe-domain": "googleapis.com"},
    }


def _accounts(email: str) -> JsonObject:
    account = {"aliases": ["default"], "email": email, "scopes": SCOPES}
    return {"default": account, email: account}


def _upper(value: bool) -> str:
    return str(value).upper()


def _comma(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
