"""Finds the hosts that a command names, and lets our key log in on them."""

from __future__ import annotations

from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session
from tpuctl.flows.remote.targets import Hosts, admit, find_hosts
from tpuctl.flows.remote.workers import HostName, WorkerSet, parse_host_name


def host_name(text: str) -> HostName:
    """Return what NAME or NAME@3 means; nothing, or `@3`, is the user's only node. Raises UsageError."""
    if text[:1] in ("", "@"):
        return HostName("", parse_host_name(f"_{text}").workers)
    return parse_host_name(text)


def find(session: Session, host: HostName, workers: WorkerSet) -> Hosts:
    """Return the workers that are to be reached; sends reads only."""
    zone = session.from_flag("zone")
    return find_hosts(session.cloud.provider, host.name, workers, session.owner, zone)


def reach(session: Session, hosts: Hosts) -> Hosts:
    """Return the hosts once our key logs in on them; sends something only if it does not yet."""
    cloud = session.cloud
    with show_steps() as report:
        return admit(cloud.provider, cloud.ssh, hosts, cloud.ssh.login_key(), report)
