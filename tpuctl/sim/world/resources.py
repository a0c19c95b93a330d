"""Nodes and operations as the world keeps them: frozen records, replaced on every change."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tpuctl.sim.records import Host
from tpuctl.sim.world import names
from tpuctl.sim.world.problems import Status


@dataclass(frozen=True, eq=False)
class Node:
    """A node: a TPU slice with its hosts."""

    name: str
    uid: int
    """What the API shows as `id`: never used again, unlike the name."""
    state: str
    create_time: float
    spec: dict[str, Any]
    """The fields that its creator may set, as sent, in the API's JSON form."""
    addresses: tuple[str, ...]
    """Of its hosts, in worker order."""
    health: str = "HEALTH_UNSPECIFIED"

    @property
    def accelerator_type(self) -> str:
        return str(self.spec["acceleratorType"])

    @property
    def metadata(self) -> dict[str, str]:
        """The user's metadata, `ssh-keys` and `startup-script` included."""
        return dict(self.spec.get("metadata", {}))

    @property
    def preemptible(self) -> bool:
        """Whether Google may take it back: a spot node, or a preemptible one as it was called before."""
        scheduling = self.spec.get("schedulingConfig", {})
        return bool(scheduling.get("spot") or scheduling.get("preemptible"))

    @property
    def external_ips(self) -> bool:
        """Whether its hosts have external addresses."""
        networks = [self.spec.get("networkConfig"), *self.spec.get("networkConfigs", [])]
        return any(network.get("enableExternalIps") for network in networks if network)

    def hosts(self) -> list[Host]:
        """Return its hosts in worker order."""
        prefix = f"t1v-n-{self.uid & 0xFFFFFFFF:08x}-w-"
        return [
            Host(
                node=self.name,
                node_uid=str(self.uid),
                worker=worker,
                address=address,
                hostname=f"{prefix}{worker}",
                accelerator_type=self.accelerator_type,
                runtime_version=self.spec["runtimeVersion"],
                peers=self.addresses,
                preemptible=self.preemptible,
            )
            for worker, address in enumerate(self.addresses)
        ]

    def changed(self, changes: Mapping[str, Any]) -> Node:
        """Return it with the fields at these paths (`networkConfig.enableExternalIps`) replaced."""
        spec = copy.deepcopy(self.spec)
        for path, value in changes.items():
            *parents, leaf = path.split(".")
            inner = spec
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[leaf] = value
        return replace(self, spec=spec)


@dataclass(frozen=True, eq=False)
class Operation:
    """A long-running operation on one node."""

    name: str
    verb: str
    target: str
    create_time: float
    before: str
    """The node's state before it, which it returns to when the operation fails."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Of an update: new values by path."""
    fault: Status | None = None
    """The end it was asked to come to."""
    end_time: float | None = None
    error: Status | None = None
    result: Node | None = None
    """The node at the end of it; None when it is gone."""
    cancel_requested: bool = False

    @property
    def done(self) -> bool:
        return self.end_time is not None

    @property
    def parent(self) -> str:
        project, zone = names.place(self.name)
        return f"projects/{project}/locations/{zone}"
