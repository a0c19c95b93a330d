"""A TPU node as tpuctl knows it, whatever API it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LABEL = "managed-by"
LABEL_VALUE = "tpuctl"
OWNER_LABEL = "tpuctl-user"

GONE = frozenset({"PREEMPTED", "TERMINATED"})
"""States of a node that is listed but will never run again."""
COMING = frozenset({"CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING"})
"""States that lead to READY without anybody's help."""


@dataclass(frozen=True)
class Node:
    """One TPU slice: one or more hosts with chips."""

    name: str
    project: str
    zone: str
    uid: str
    """Never used again, unlike the name."""
    state: str
    accelerator: str
    runtime: str
    created: str
    """ISO-8601, UTC."""
    spot: bool = False
    health: str = ""
    addresses: tuple[str, ...] = ()
    """Where SSH reaches each worker, in worker order."""
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def managed(self) -> bool:
        """Made by tpuctl, so `tpuctl down` may delete it."""
        return self.labels.get(LABEL) == LABEL_VALUE

    @property
    def owner(self) -> str:
        """The SSH user of whoever made it."""
        return self.labels.get(OWNER_LABEL, "")


@dataclass(frozen=True)
class NodeRequest:
    """What to create."""

    name: str
    project: str
    zone: str
    accelerator: str
    runtime: str
    spot: bool
    network: str
    service_account: str | None
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    subnetwork: str | None = None
    external_ips: bool = True


@dataclass(frozen=True)
class HttpRequest:
    """A request as it would go over the wire, for --dry-run."""

    method: str
    url: str
    body: object = None
