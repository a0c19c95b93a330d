"""Defines the records of a TPU node, the same for every provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from msgspec import field as stored

from tpuctl import accelerators
from tpuctl.bucket_objects import Label, Metadata
from tpuctl.nodes.owner import Owned

T = TypeVar("T")

CLOUD_TPU = "cloud-tpu"
"""The provider of nodes made through the Cloud TPU API; records in the bucket name it."""


class NodeState(StrEnum):
    """What a node is doing; each provider maps its own states to these."""

    CREATING = "CREATING"
    STARTING = "STARTING"
    READY = "READY"
    REPAIRING = "REPAIRING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    """Can be started again."""
    PREEMPTED = "PREEMPTED"
    """Taken back by the provider: still listed, never runs again."""
    DELETING = "DELETING"
    GONE = "GONE"
    """Does not exist any more."""
    UNKNOWN = "UNKNOWN"

    @property
    def becomes_ready(self) -> bool:
        """Whether the node will be READY without anybody's help."""
        return self in (NodeState.CREATING, NodeState.STARTING, NodeState.REPAIRING)

    @property
    def bills(self) -> bool:
        """Whether the chips bill, or are about to; the disk of a stopped node does also."""
        return self not in (NodeState.STOPPED, NodeState.PREEMPTED, NodeState.GONE)

    @property
    def order(self) -> int:
        """Sorts the states of slices: the first is the state of all."""
        return _ORDER.index(self)


_ORDER = (
    NodeState.PREEMPTED, NodeState.GONE, NodeState.DELETING, NodeState.STOPPED, NodeState.STOPPING,
    NodeState.REPAIRING, NodeState.UNKNOWN, NodeState.CREATING, NodeState.STARTING, NodeState.READY,
)  # fmt: skip


@dataclass(frozen=True)
class NodeId:
    """Which node: enough to find it from any machine, as records in the bucket carry it."""

    provider: str
    project: str
    zone: str
    name: str
    uid: str = ""
    """Never used again, unlike the name; empty where the node may not exist yet. Of slices, the first's."""
    slices: tuple[NodeId, ...] = ()
    """The nodes of a multislice TPU, in order; empty for one node."""
    slice_hosts: int = 0
    """Hosts of each slice."""

    @property
    def parts(self) -> tuple[NodeId, ...]:
        """The nodes that the provider knows: the slices, or this one."""
        return self.slices or (self,)

    @property
    def uids(self) -> frozenset[str]:
        """Those of all of its nodes."""
        return frozenset(part.uid for part in self.parts)

    def host(self, worker: int) -> tuple[NodeId, int]:
        """Return the node of a worker, and which of its hosts that is."""
        if not self.slices:
            return self, worker
        number, host = divmod(worker, self.slice_hosts)
        return self.slices[number], host


@dataclass(frozen=True)
class Symptom:
    """Ill health that the provider has noticed on one worker."""

    worker: str
    """Its number, as the provider writes it."""
    kind: str
    """The provider's word: `OUT_OF_MEMORY`."""
    details: str
    noticed: str
    """ISO-8601, UTC; empty where the provider does not say."""


class DataDisk(Struct, frozen=True):
    """A persistent disk that the hosts of a node get."""

    source: Label
    """Name of the disk, alone or with its project and zone as the provider writes it."""
    read_only: bool = False
    """The hosts of one node can share a disk in no other mode."""


class NodeSpec(Struct, frozen=True, kw_only=True):
    """What is chosen of a node besides its type: the same in options, requests, nodes and records of runs.

    With these another node like it can be made.
    """

    network: Label = "default"
    subnetwork: Label = ""
    """Empty for that of the network and region."""
    external_ips: bool = True
    service_account: Label = ""
    """Empty for the project's default."""
    scopes: Annotated[tuple[Label, ...], Meta(max_length=100)] = ()
    """OAuth scopes of the account, also by the provider's short names; empty for all of its roles."""
    tags: Annotated[tuple[Label, ...], Meta(max_length=100)] = ()
    """Network tags."""
    data_disks: Annotated[tuple[DataDisk, ...], Meta(max_length=128)] = stored(default=(), name="disks")
    topology: Label = ""
    """The shape of the slice, `2x2x4`; empty for the default of its type."""
    secure_boot: bool = False
    reserved: bool = False
    """Uses capacity that is reserved for the project."""
    metadata: Annotated[Mapping[Label, Metadata], Meta(max_length=1000)] = {}
    """Without the keys that only the provider or a tool may set, such as those of SSH."""
    startup_script: Metadata = ""
    """The content as hosts run it at each boot."""

    @property
    def chosen(self) -> dict[str, Any]:
        """The values by the names of these fields, for another record that has them, too."""
        return {name: getattr(self, name) for name in NodeSpec.__struct_fields__}


@dataclass(frozen=True)
class Node(Owned):
    """One TPU slice: one or more hosts with chips."""

    id: NodeId
    state: NodeState
    provider_state: str
    """The provider's own name of the state, to be shown."""
    accelerator: str
    runtime: str
    created: str
    """ISO-8601, UTC."""
    spot: bool = False
    health: str = ""
    """The provider's word; empty where it says nothing."""
    health_description: str = ""
    """Why it is ill, in the provider's words."""
    symptoms: tuple[Symptom, ...] = ()
    addresses: tuple[str, ...] = ()
    """Where SSH reaches each worker, in worker order; an empty text for one without an address yet."""
    external: tuple[bool, ...] = ()
    """Whether each address is reached from outside of the provider's network; empty where that is unknown."""
    internal: tuple[str, ...] = ()
    """Where the hosts reach each worker."""
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    queued_resource: str = ""
    """The name of the queued resource that made it; empty for a node that was created directly."""
    multislice: bool = False
    """Whether it is one of several slices."""
    slices: tuple[Node, ...] = ()
    """Of a multislice TPU as a whole; see `joined`."""
    created_at: float = 0.0
    """`created` in seconds since 1970, with fractions: says which of two was first; 0.0 for unknown."""
    spec: NodeSpec = field(default_factory=NodeSpec)

    @property
    def hosts(self) -> int:
        """How many hosts it has: of a type that the catalogue lacks, as many as the provider lists."""
        if self.slices:
            return sum(each.hosts for each in self.slices)
        kind = accelerators.catalogue().get(self.accelerator)
        return max(kind.hosts if kind else 1, len(self.addresses))

    @property
    def parts(self) -> tuple[Node, ...]:
        """The nodes that the provider knows: the slices, or this one."""
        return self.slices or (self,)

    @property
    def missing_hosts(self) -> str:
        """Which hosts the provider does not list, as a clause; empty where it lists all of them.

        The position of an address is the number of its worker: where one is missing, no other is certain.
        """
        listed = sum(map(bool, self.addresses))
        if listed >= self.hosts:
            return ""
        if self.hosts == 1:
            return "the provider lists no address of its host"
        return f"the provider lists {listed or 'none'} of its {self.hosts} hosts"


def joined(name: str, slices: Sequence[Node]) -> Node:
    """Return a multislice TPU as one node: its hosts are those of its slices, one slice after the other."""
    first, worst = slices[0], min(slices, key=lambda each: each.state.order)
    ids = tuple(each.id for each in slices)
    return replace(
        first,
        id=replace(first.id, name=name, slices=ids, slice_hosts=first.hosts),
        state=worst.state,
        provider_state=worst.provider_state,
        addresses=tuple(chain.from_iterable(_padded(each, each.addresses, "") for each in slices)),
        external=tuple(chain.from_iterable(_padded(each, each.external, False) for each in slices)),
        internal=tuple(chain.from_iterable(_padded(each, each.internal, "") for each in slices)),
        slices=tuple(slices),
    )


def _padded(node: Node, values: tuple[T, ...], rest: T) -> tuple[T, ...]:
    """Return values of a node's hosts, with `rest` for those that the provider does not list."""
    return (*values, *[rest] * (node.hosts - len(values)))


@dataclass(frozen=True)
class NodeList:
    """The nodes of one zone or of all zones."""

    nodes: tuple[Node, ...]
    unreachable: tuple[str, ...] = ()
    """Zones that did not answer: their nodes are missing from the list."""


@dataclass(frozen=True)
class SshKey:
    """The public half of a key, and the user who logs in with it.

    Raises ValueError for what would be more than one line `USER:KEY` of a node's metadata.
    """

    user: str
    public_key: str
    """`TYPE BASE64`, without a comment."""

    def __post_init__(self) -> None:
        if not self.user or not self.user.isprintable() or ":" in self.user or " " in self.user:
            raise ValueError(f"{self.user!r} cannot be the user of a key")
        if not self.public_key.isprintable():
            raise ValueError(f"{self.public_key!r} is not one line")


class NodeRequest(NodeSpec, frozen=True):
    """The node to create."""

    id: NodeId
    accelerator: str
    runtime: str
    spot: bool
    labels: Mapping[str, str]
    ssh_key: SshKey
    """The first key that may log in."""


@dataclass(frozen=True)
class HttpRequest:
    """A request as it would go over the wire, for --dry-run."""

    method: str
    url: str
    body: object = None
