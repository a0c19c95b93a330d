"""Finds the hosts that a command names, and lets our key log in on them."""

from __future__ import annotations

from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session
from tpuctl.client.nodes import hosts as calls
from tpuctl.flows.remote.targets import Hosts
from tpuctl.flows.remote.workers import HostName, WorkerSet


def find(session: Session, host: HostName, workers: WorkerSet) -> Hosts:
    """Return the workers that are to be reached; sends reads only."""
    return calls.find(session.context, host, workers, session.from_flag("zone"))


def reach(session: Session, hosts: Hosts) -> Hosts:
    """Return the hosts once our key logs in on them; sends something only if it does not yet."""
    with show_steps() as report:
        return calls.reach(session.context, hosts, report)
