"""Defines the stored records of nodes, queued resources and operations: frozen, replaced on change.

- Parses, checks and makes resource names in requests; a bad name is INVALID_ARGUMENT.
- Parses filters of lists, in the simple form that tools send: `field=value`, `field:part`, AND.
- Pages lists by the last name shown, so that pages are stable while resources come and go.
- The fields of nodes and queued resources that a request may set, in the API's JSON form.

  API v2 with v2alpha1's own fields added. Fields that are not here are written by the service alone.
  Enums are their names; a number is one that this version of the API does not know.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, TypeVar

import msgspec

from tpuctl.sim import resource_names
from tpuctl.sim.records import DEFAULT_ACCOUNT, Host
from tpuctl.sim.resource_names import ResourceName
from tpuctl.sim.world.api_errors import Status, api_error

PARENT = re.compile(r"projects/[^/]+/locations/[^/]+")
IDENTIFIER = re.compile(r"[a-z]([-_a-z0-9]{0,61}[a-z0-9])?")
"""Compute Engine's rule for names, with the underscores that the Cloud TPU API is known to take."""

ADDRESSES = "address"
"""The counter of hosts' addresses."""
NETWORKS = 64 * 256
HOSTS_OF_A_NETWORK = 254


def parse(name: str) -> ResourceName:
    """Return the parts of a name; raises INVALID_ARGUMENT."""
    try:
        return resource_names.parse(name)
    except ValueError:
        raise api_error("bad_name", name=name) from None


def id_of(name: str) -> str:
    """Return the last part of a full name; an id alone is returned as it is."""
    return name.rpartition("/")[2]


def require_identifier(identifier: str, what: str = "node") -> None:
    """Raise INVALID_ARGUMENT unless a new resource can have this id; `what` is the kind of it."""
    if not IDENTIFIER.fullmatch(identifier):
        raise api_error("bad_id", id=identifier, what=what)


def require_collection(name: str, collection: str) -> None:
    """Raise INVALID_ARGUMENT unless `name` is a full name in that collection."""
    if not re.fullmatch(rf"projects/[^/]+/locations/[^/]+/{collection}/[^/]+", name):
        raise api_error("bad_name", name=name)


def list_prefix(parent: str) -> str:
    """Return the prefix of the names that a list of `parent` shows; raises INVALID_ARGUMENT.

    The zone `-` stands for every zone.
    """
    parent = parent.removesuffix("/operations")
    if not PARENT.fullmatch(parent):
        raise api_error("bad_name", name=parent)
    return parent.removesuffix("/-") + "/"


def new_operation(parent: str, seconds: float) -> str:
    """Return a fresh name in Google's form: `operation-<ms>-<13 hex>-<8 hex>-<8 hex>`."""
    parts = (secrets.token_hex(7)[:13], secrets.token_hex(4), secrets.token_hex(4))
    return f"{parent}/operations/operation-{int(seconds * 1000)}-{'-'.join(parts)}"


def address(number: int) -> str:
    """Return the loopback address of the host with this number: 1 is 127.77.0.1.

    Addresses run through 127.64.0.0/10, skip .0 and .255, and repeat after 4 million hosts.
    """
    network, last = divmod(number - 1, HOSTS_OF_A_NETWORK)
    network = (network + (77 - 64) * 256) % NETWORKS
    return f"127.{64 + network // 256}.{network % 256}.{last + 1}"


def addresses_before(folder: Path) -> int:
    """Return the number after which the hosts of the simulator in `folder` are numbered.

    Simulators share the machine's loopback, where the programs of one would reach those of another at the
    same address. Each folder has one of 16,384 networks, so that two have the same once in as many pairs.
    """
    return zlib.crc32(os.fsencode(folder)) % NETWORKS * HOSTS_OF_A_NETWORK


TERM = re.compile(
    r"""\s*(?P<not>NOT\s+|-)? (?P<path>[\w.]+) \s*(?P<operator>!=|=|:)\s* (?P<value>"[^"]*"|[^\s()"]+)""",
    re.VERBOSE,
)
AND = re.compile(r"\s+AND\s+|\s+")

COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda actual, operand: actual == operand,
    "!=": lambda actual, operand: actual != operand,
    ":": lambda actual, operand: operand.rstrip("*") in actual,
}


def matcher(text: str) -> Callable[[Mapping[str, object]], bool]:
    """Return a test of a resource in its JSON form; raises INVALID_ARGUMENT for a text that is no filter.

    OR and parentheses are refused; the grammar of Google's filters (google.aip.dev/160) has more.
    """
    terms: list[re.Match[str]] = []
    at = 0
    while at < len(text.rstrip()):
        if terms:
            joint = AND.match(text, at)
            at = joint.end() if joint else at
        term = TERM.match(text, at)
        if not term or term["path"] in ("AND", "OR"):
            raise api_error("bad_filter", reason=f"'{text}' is not understood at '{text[at:]}'")
        terms.append(term)
        at = term.end()
    return lambda resource: all(_holds(term, resource) for term in terms)


def _holds(term: re.Match[str], resource: Mapping[str, object]) -> bool:
    value: object = resource
    for part in term["path"].split("."):
        value = value.get(_camel_case(part)) if isinstance(value, Mapping) else None
    text = str(value).lower() if isinstance(value, bool) else str("" if value is None else value)
    return COMPARISONS[term["operator"]](text, term["value"].strip('"')) != bool(term["not"])


def _camel_case(part: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), part)


MAX_PAGE_SIZE = 1000
"""Also the size when a request names none."""

Resource = TypeVar("Resource")


def page(
    resources: Iterable[Resource], name: Callable[[Resource], str], size: int, token: str
) -> tuple[list[Resource], str]:
    """Return one page of `resources` by name, and the token of the next or ''; raises INVALID_ARGUMENT."""
    if size < 0:
        raise api_error("bad_page", parameter=f"page_size {size}")
    after = _last_name(token)
    ordered = sorted((resource for resource in resources if name(resource) > after), key=name)
    size = min(size or MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    chosen = ordered[:size]
    more = len(ordered) > size
    return chosen, base64.urlsafe_b64encode(name(chosen[-1]).encode()).decode() if more else ""


def _last_name(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise api_error("bad_page", parameter=f"page_token '{token}'") from None


MessageFields = dict[str, object]
"""Any message in its JSON form."""


class AcceleratorConfig(TypedDict, total=False):
    type: str | int
    topology: str


class NetworkConfig(TypedDict, total=False):
    network: str
    subnetwork: str
    enableExternalIps: bool
    canIpForward: bool
    queueCount: int


class ServiceAccount(TypedDict, total=False):
    email: str
    scope: list[str]


class SchedulingConfig(TypedDict, total=False):
    preemptible: bool
    reserved: bool
    spot: bool


class AttachedDisk(TypedDict, total=False):
    sourceDisk: str
    mode: str | int


class ShieldedInstanceConfig(TypedDict, total=False):
    enableSecureBoot: bool


class CustomerEncryptionKey(TypedDict, total=False):
    kmsKeyName: str


class BootDiskConfig(TypedDict, total=False):
    customerEncryptionKey: CustomerEncryptionKey
    enableConfidentialCompute: bool


class NodeFields(TypedDict, total=False):
    """A node, or of an update its changed fields."""

    description: str
    acceleratorType: str
    acceleratorConfig: AcceleratorConfig
    runtimeVersion: str
    networkConfig: NetworkConfig
    networkConfigs: list[NetworkConfig]
    cidrBlock: str
    serviceAccount: ServiceAccount
    schedulingConfig: SchedulingConfig
    labels: dict[str, str]
    metadata: dict[str, str]
    tags: list[str]
    dataDisks: list[AttachedDisk]
    shieldedInstanceConfig: ShieldedInstanceConfig
    autocheckpointEnabled: bool
    bootDiskConfig: BootDiskConfig


class UpcomingMaintenance(TypedDict):
    """Written by the service alone; v2 does not show it."""

    type: str
    canReschedule: bool
    maintenanceStatus: str
    windowStartTime: str
    windowEndTime: str
    latestWindowStartTime: str


class MultisliceParams(TypedDict, total=False):
    nodeCount: int
    nodeIdPrefix: str
    workloadType: str | int


class NodeSpec(TypedDict, total=False):
    """A node of a queued resource, or with `multisliceParams` several of one kind."""

    parent: str
    nodeId: str
    multisliceParams: MultisliceParams
    node: NodeFields


class Tpu(TypedDict, total=False):
    nodeSpec: list[NodeSpec]


class EmptyMessage(TypedDict, total=False):
    """A message without fields."""


class Guaranteed(TypedDict, total=False):
    minDuration: str
    reserved: bool


class Interval(TypedDict, total=False):
    startTime: str
    endTime: str


class QueueingPolicy(TypedDict, total=False):
    validUntilDuration: str
    validUntilTime: str
    validAfterDuration: str
    validAfterTime: str
    validInterval: Interval


class QueuedResourceFields(TypedDict, total=False):
    tpu: Tpu
    spot: EmptyMessage
    bestEffort: EmptyMessage
    guaranteed: Guaranteed
    queueingPolicy: QueueingPolicy
    reservationName: str


def node_fields(sent: Mapping[str, object]) -> NodeFields:
    """Return the fields of a node as sent that a request may set; as with Google, others are ignored."""
    return msgspec.convert(sent, NodeFields)


def queued_resource_fields(sent: Mapping[str, object]) -> QueuedResourceFields:
    """Return the fields of a queued resource as sent that a request may set; others are ignored."""
    return msgspec.convert(sent, QueuedResourceFields)


def is_preemptible(node: NodeFields) -> bool:
    """Whether Google may take the node back: a spot node, or a preemptible one as it was called before."""
    scheduling = node.get("schedulingConfig", {})
    return bool(scheduling.get("spot") or scheduling.get("preemptible"))


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
        return is_preemptible(self.spec)

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
        any_reservation = f"{parse(self.name).parent}/reservations/-"
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
        return parse(self.target).collection == "nodes"
