"""Defines the stored records of nodes, queued resources and operations: frozen, replaced on change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tpuctl.sim.records import DEFAULT_ACCOUNT, Host
from tpuctl.sim.world import api_json, names
from tpuctl.sim.world.api_errors import Status
from tpuctl.sim.world.api_json import NodeFields, QueuedResourceFields, UpcomingMaintenance


@dataclass(frozen=True, eq=False)
class Node:
    """A node: a TPU slice with its hosts."""

    name: str
    uid: int
    """What the API shows as `id`: never used again, unlike the name."""
    state: str
    create_time: float
    spec: NodeFields
    """The fields that its creator may set, checked; the accelerator type and configuration are filled in."""
    addresses: tuple[str, ...]
    """Of its hosts, in worker order."""
    unlisted: tuple[int, ...] = ()
    """The workers whose endpoints the API does not show, as Google's sometimes does not; a test sets it."""
    health: str = "HEALTH_UNSPECIFIED"
    queued_resource: str = ""
    """Full name of the queued resource that it was created for."""
    multislice: bool = False
    """Whether its queued resource has several nodes."""
    slices: tuple[str, ...] = ()
    """Addresses of worker 0 of each of them, in the order of their names; empty for a single node."""
    reservation: str = ""
    """Full name of the reservation that its capacity comes from."""
    maintenance: UpcomingMaintenance | None = None
    maintenance_workers: tuple[int, ...] = ()
    """The workers whose metadata servers announce it."""

    @property
    def accelerator_type(self) -> str:
        return self.spec["acceleratorType"]

    @property
    def metadata(self) -> dict[str, str]:
        """The user's metadata, `ssh-keys` and `startup-script` included."""
        return dict(self.spec.get("metadata", {}))

    @property
    def preemptible(self) -> bool:
        """Whether it is a spot or a preemptible node."""
        return api_json.is_preemptible(self.spec)

    @property
    def external_ips(self) -> bool:
        """Whether its hosts have external addresses."""
        networks = [self.spec.get("networkConfig", {}), *self.spec.get("networkConfigs", [])]
        return any(network.get("enableExternalIps") for network in networks)

    @property
    def ends_after_24_hours(self) -> bool:
        """A preemptible node does, a spot node does not."""
        return self.spec.get("schedulingConfig", {}).get("preemptible", False)

    def hosts(self) -> list[Host]:
        """Return its hosts in worker order."""
        prefix = f"t1v-n-{self.uid & 0xFFFFFFFF:08x}-w-"
        account = self.spec.get("serviceAccount", {}).get("email", "")
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
                named_account=account if account != DEFAULT_ACCOUNT else "",
                external=self.external_ips,
            )
            for worker, address in enumerate(self.addresses)
        ]

    def updated(self, changes: NodeFields) -> Node:
        """Return the node with these fields replaced, of its network those that `changes` has."""
        spec: NodeFields = {**self.spec, **changes}
        if "networkConfig" in changes:
            spec["networkConfig"] = {**self.spec.get("networkConfig", {}), **changes["networkConfig"]}
        return replace(self, spec=spec)


@dataclass(frozen=True, eq=False)
class QueuedResource:
    """A request for nodes, provisioned when there is capacity."""

    name: str
    state: str
    create_time: float
    since: float
    """When it entered its state."""
    spec: QueuedResourceFields
    """The fields that its creator may set, checked."""
    nodes: dict[str, NodeFields]
    """Full names of the requested nodes -> their fields."""
    valid_after: float | None = None
    valid_until: float | None = None
    initiator: str = ""
    """Of SUSPENDING and SUSPENDED: `USER` or `SERVICE`."""
    error: Status | None = None
    """Why it FAILED."""
    injected_error: Status | None = None
    """With which it is to fail once it is accepted: a fault that a test or a rehearsal added."""
    operations: tuple[str, ...] = ()
    """Those that create its nodes, while it is PROVISIONING."""
    attempts: int = 0
    """How often it has entered PROVISIONING, or met a stockout in its place."""
    requeue: bool = False
    """Of SUSPENDING: whether it is queued again afterwards."""
    force: bool = False
    """Of DELETING: whether its nodes are deleted, too."""

    @property
    def reservation(self) -> str:
        """The reservation that it requests, `.../-` for any of a project; '' for none."""
        any_reservation = f"{names.parse(self.name).parent}/reservations/-"
        reserved = self.spec.get("guaranteed", {}).get("reserved")
        return self.spec.get("reservationName") or (any_reservation if reserved else "")


@dataclass(frozen=True)
class RequestContext:
    """The API version of a request, and its `request_id`."""

    api_version: str = "v2"
    request_id: str = ""
    """A request with the id of an earlier one returns the earlier one's operation."""


DEFAULT_CONTEXT = RequestContext()


@dataclass(frozen=True, eq=False)
class Operation:
    """A long-running operation on one node or one queued resource."""

    name: str
    verb: str
    target: str
    create_time: float
    before: str
    """The target's state before it, which a node returns to when the operation fails."""
    changes: NodeFields = field(default_factory=NodeFields)
    """Of an update: the new values."""
    workers: tuple[int, ...] = ()
    """Of a simulated maintenance event: the workers that it announces."""
    injected_error: Status | None = None
    """With which it is to fail: stockout, or a fault that a test or a rehearsal added."""
    delay: float = 0.0
    """Seconds by which a fault lengthens it."""
    held_by: str = ""
    """The id of the fault that keeps it from ending."""
    end_time: float | None = None
    error: Status | None = None
    result: Node | None = None
    """The node at its end; None when the node is deleted."""
    queued: QueuedResource | None = None
    """The queued resource at its end, when its target is one."""
    cancel_requested: bool = False
    vacant: bool = False
    """Whether its node used no capacity when it began."""
    context: RequestContext = DEFAULT_CONTEXT

    @property
    def done(self) -> bool:
        return self.end_time is not None

    @property
    def on_node(self) -> bool:
        """Whether its target is a node, not a queued resource."""
        return names.parse(self.target).collection == "nodes"
