"""Writes the /etc/hosts of a host: its own name, those of the other workers, and the metadata server's."""

from __future__ import annotations

from tpuctl.sim.records import Host

METADATA = "metadata.google.internal"
ADDED = "# Added by Google"
"""What Google's guest agent writes behind its lines."""


def etc_hosts(host: Host, metadata: str, machine: str) -> str:
    """Return its text; `metadata` is the metadata server's address, '' where port 80 is not the simulator's.

    The names of `machine`, the text of this machine's file, stay: the host reaches what the machine reaches.
    """
    lines = [f"{address} {_names(host, worker)}" for worker, address in enumerate(host.peers)]
    lines += [f"{metadata} {METADATA}"] if metadata else []
    return "".join([machine.rstrip("\n"), "\n", *(f"{line}  {ADDED}\n" for line in lines)])


def _names(host: Host, worker: int) -> str:
    """The full name of a worker in the network's own DNS, and the short one."""
    short = f"{host.hostname.rpartition('-')[0]}-{worker}"
    return f"{short}.{host.zone}.c.{host.project}.internal {short}"
