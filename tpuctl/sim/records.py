"""Defines the records of a node's hosts, which the world and the host pool exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tpuctl.sim import resource_names
from tpuctl.sim.accounts import service_account

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL when a host ends: what Compute Engine gives a preempted VM.

https://cloud.google.com/compute/docs/instances/preemptible#preemption-process
"""

DEFAULT_ACCOUNT = "default"
"""The name by which a node can ask for the project's default service account."""


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
    """Addresses of worker 0 of each slice of a multislice request; empty for a single slice."""
    named_account: str = ""
    """The service account that the node names; '' for the project's default one."""
    external: bool = True
    """Whether its address can be reached from outside of the simulated network."""

    @property
    def project(self) -> str:
        return resource_names.parse(self.node).project

    @property
    def service_account(self) -> str:
        """The address of the service account as which its programs call Google's APIs."""
        return self.named_account or service_account(self.project)

    @property
    def zone(self) -> str:
        return resource_names.parse(self.node).zone

    @property
    def node_id(self) -> str:
        return resource_names.parse(self.node).id


@dataclass(frozen=True)
class GuestAttribute:
    """One guest attribute of a host, as GetGuestAttributes returns it."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True)
class Notices:
    """The notices that the host's metadata server shows."""

    preempted: bool = False
    maintenance_event: str = "NONE"


class Hosts(Protocol):
    """Runs the hosts: the world calls it when a node is created, stopped, deleted or preempted."""

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Start every host of a node, also again after a restart; idempotent. `metadata` is the node's."""

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool, grace: float = GRACE) -> None:
        """End the hosts' processes and close their servers; without `keep_disk` delete their files.

        A process that goes on after SIGTERM is killed `grace` seconds later.
        """

    async def update_metadata(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Replace the node's metadata on its hosts, `ssh-keys` included."""

    async def announce(self, hosts: Sequence[Host], notices: Notices) -> None:
        """Show a preemption or maintenance notice on the hosts' metadata servers; nothing is stopped."""

    def guest_attributes(self, host: Host) -> list[GuestAttribute]:
        """Return the attributes that the host has written: `hostkeys/ssh-ed25519`, `guestInventory/...`."""
