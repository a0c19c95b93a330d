"""Writes entries of ssh_config(5), by which programs that use OpenSSH reach the workers of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpuctl.cloud.provider import Provider
from tpuctl.flows.nodes.inventory import take_inventory
from tpuctl.flows.nodes.lookup import find_decided
from tpuctl.flows.remote.targets import no_hosts_yet, no_own_tpu, only_own
from tpuctl.nodes import Node

HOST_SUFFIX = ".tpuctl"
"""Ends the name under which OpenSSH looks up a host key; no network knows it."""
SIM_SUFFIX = ".sim"
"""Ends the names of hosts on the simulator."""
TITLE = "# tpuctl: node {} of {}"


@dataclass(frozen=True)
class Entry:
    """The lines for one node: its own name is worker 0, `NAME.w3` is worker 3."""

    node: str
    zone: str
    """The zone whose node of this name it is; empty for the one in whatever zone."""
    place: str
    """The project, or the simulator, that the node is in; another one may have a node of this name."""
    hosts: tuple[str, ...]
    """The names that `ssh` understands."""
    options: Mapping[str, str]

    @property
    def file_name(self) -> str:
        """The name of its file: no two entries may have the same."""
        return self.hosts[0]

    @property
    def title(self) -> str:
        """The first line, which says whose entry it is."""
        return TITLE.format(_base(self.node, self.zone), self.place)

    @property
    def text(self) -> str:
        """The lines."""
        lines = [self.title, f"Host {' '.join(self.hosts)}"]
        return "".join(
            f"{line}\n" for line in (*lines, *map("    {0[0]} {0[1]}".format, self.options.items()))
        )


def entry(node: Node, place: str, suffix: str, options: Mapping[str, str], zone: str = "") -> Entry:
    """Return the entry of a node; `suffix` ends its names, as `.sim` on the simulator.

    `zone` is the node's where the names say it: another zone has a node of this name.
    """
    names = [name for worker in range(node.hosts) for name in host_names(node.name, worker, zone)]
    fixed = {"HostName": f"%h{HOST_SUFFIX}", "Port": "22"}
    return Entry(node.name, zone, place, tuple(f"{name}{suffix}" for name in names), {**fixed, **options})


def host_names(name: str, worker: int, zone: str) -> list[str]:
    """Return the names of a worker in an entry: no node has one of them, as none has a dot in its name."""
    base = _base(name, zone)
    return [*([base] if worker == 0 else []), f"{base}.w{worker}"]


def _base(name: str, zone: str) -> str:
    return f"{name}.{zone}" if zone else name


def find_nodes(
    provider: Provider, names: Sequence[str], owner: str, zone: str | None, *, everything: bool = False
) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes of these names, and the zones that did not answer.

    Without a name those of the owner's only TPU, else Terraform's, with `everything` all of both. The nodes
    are in any state. Raises NotFoundError or StateError where there are none or several TPUs, DeadlineError
    where a silent zone may hold them.
    """
    if not everything:
        allocations = [find_decided(provider, name, zone) for name in names]
        allocations = allocations or [only_own(provider, owner, zone)]
        for item in allocations:
            if not item.nodes and item.queued_resource:
                raise no_hosts_yet(item.queued_resource)
        return [node for item in allocations for node in item.nodes], ()
    inventory = take_inventory(provider, zone)
    own = [item for item in inventory.allocations if item.is_usable_by(owner) and not item.is_over]
    nodes = [node for item in own for node in item.nodes]
    if not nodes:
        raise no_own_tpu(inventory.unreachable, inventory.zone)
    return nodes, inventory.unreachable
