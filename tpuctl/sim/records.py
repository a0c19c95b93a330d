"""What the simulator's parts tell each other about: nodes and their hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Host:
    """One host (worker) of a node."""

    node: str
    """Full name, `projects/P/locations/Z/nodes/N`."""
    node_uid: str
    """The node's id: never used again, unlike its name."""
    worker: int
    address: str
    """The IP address in the node's network endpoints, in 127.64.0.0/10."""
    hostname: str
    """`t1v-n-<8 hex>-w-<worker>`"""
    accelerator_type: str
    runtime_version: str
    peers: tuple[str, ...]
    """Addresses of all hosts of the node, in worker order."""
    preemptible: bool
    slices: tuple[str, ...] = ()
    """Addresses of worker 0 of each slice of a request for several; none for a slice alone."""

    @property
    def project(self) -> str:
        return self.node.split("/")[1]

    @property
    def zone(self) -> str:
        return self.node.split("/")[3]

    @property
    def node_id(self) -> str:
        return self.node.split("/")[5]


@dataclass(frozen=True)
class GuestAttribute:
    """One guest attribute of a host, as GetGuestAttributes returns it."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True)
class Notices:
    """What the platform has announced to the host."""

    preempted: bool = False
    maintenance_event: str = "NONE"


class Hosts(Protocol):
    """What the world asks of whoever runs the hosts."""

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Bring every host of a node up (again, after a restart): `metadata` is the node's. Idempotent."""

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool) -> None:
        """End every process of the hosts, close their servers; without `keep_disk` delete their files."""

    async def update_metadata(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """The node's metadata has changed, `ssh-keys` included."""

    async def announce(self, hosts: Sequence[Host], notices: Notices) -> None:
        """Show a preemption or maintenance notice on these hosts' metadata servers; nothing is ended yet."""

    def guest_attributes(self, host: Host) -> list[GuestAttribute]:
        """Return what the host has written: `hostkeys/ssh-ed25519` and `guestInventory/...`."""
