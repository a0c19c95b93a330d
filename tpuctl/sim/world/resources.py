"""Nodes, queued resources and operations as the world keeps them: frozen records, replaced on change."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tpuctl.sim.records import Host
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import Status


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
    queued_resource: str = ""
    """Full name of the queued resource that it was created for."""
    multislice: bool = False
    """Whether that asked for several nodes."""
    slices: tuple[str, ...] = ()
    """Addresses of worker 0 of each of them, in the order of their names; none for a node alone."""
    reservation: str = ""
    """Full name of the reservation that it uses up."""
    maintenance: dict[str, Any] | None = None
    """UpcomingMaintenance in its JSON form."""
    flagged: tuple[int, ...] = ()
    """The workers that have been told of it."""

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

    @property
    def limited(self) -> bool:
        """Whether it ends after 24 hours: a preemptible node does, a spot node does not."""
        return bool(self.spec.get("schedulingConfig", {}).get("preemptible"))

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
                slices=self.slices,
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
class QueuedResource:
    """A request for nodes that waits its turn, and what became of it."""

    name: str
    state: str
    create_time: float
    since: float
    """When it came to its state."""
    spec: dict[str, Any]
    """What its creator may set, checked, in the JSON form of API v2 with v2alpha1's own fields."""
    nodes: dict[str, dict[str, Any]]
    """Full names of the nodes that it asks for -> their fields."""
    valid_after: float | None = None
    valid_until: float | None = None
    initiator: str = ""
    """Of SUSPENDING and SUSPENDED: `USER` or `SERVICE`."""
    error: Status | None = None
    """Why it FAILED."""
    fault: Status | None = None
    """The end it was asked to come to, once accepted."""
    operations: tuple[str, ...] = ()
    """Those that create its nodes, while it is PROVISIONING."""
    tries: int = 0
    """How often it has come to PROVISIONING."""
    requeue: bool = False
    """Of SUSPENDING: whether it starts anew afterwards."""
    force: bool = False
    """Of DELETING: whether its nodes go with it."""

    @property
    def reservation(self) -> str:
        """The reservation it asks for, `.../-` for any of a project; '' for none."""
        any_one = f"{names.parent(self.name)}/reservations/-"
        reserved = self.spec.get("guaranteed", {}).get("reserved")
        return str(self.spec.get("reservationName") or (any_one if reserved else ""))


@dataclass(frozen=True)
class Asked:
    """How an operation was asked for."""

    api_version: str = "v2"
    request_id: str = ""
    """Makes the same request, sent again, the same operation."""


PLAINLY = Asked()


@dataclass(frozen=True, eq=False)
class Operation:
    """A long-running operation on one node or one queued resource."""

    name: str
    verb: str
    target: str
    create_time: float
    before: str
    """The target's state before it, which a node returns to when the operation fails."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Of an update: new values by path. Of a simulated maintenance event: `workers`."""
    fault: Status | None = None
    """The end it was asked to come to."""
    delay: float = 0.0
    """Seconds that it was asked to take longer."""
    held: str = ""
    """The fault that keeps it from ending, by id."""
    end_time: float | None = None
    error: Status | None = None
    result: Node | None = None
    """The node at the end of it; None when it is gone."""
    queued: QueuedResource | None = None
    """The queued resource at the end of an operation on one."""
    cancel_requested: bool = False
    asked: Asked = PLAINLY

    @property
    def done(self) -> bool:
        return self.end_time is not None

    @property
    def on_node(self) -> bool:
        """Whether its target is a node, not a queued resource."""
        return "/nodes/" in self.target
