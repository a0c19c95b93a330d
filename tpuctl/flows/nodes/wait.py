"""Waits for a TPU that was requested before; changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.flows.hosts.ssh_access import await_hosts, await_ssh
from tpuctl.flows.nodes.inventory import Allocation
from tpuctl.flows.nodes.lookup import find_decided
from tpuctl.flows.nodes.placement.creation import Patience, await_existing
from tpuctl.flows.progress import Report
from tpuctl.nodes import Node, SshKey
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


def wait(
    provider: Provider, ssh: Ssh, key: SshKey, name: str, zone: str | None, seconds: float, report: Report
) -> Allocation:
    """Return a TPU once its nodes are READY, and its hosts answer over SSH where they accept the key.

    Raises NotFoundError without one, DeadlineError after so many seconds without capacity or for a zone that
    did not answer, and the error of a request that has failed.
    """
    allocation = find_decided(provider, name, zone)
    ready = await_existing(provider, allocation, Patience(seconds, gives_up=False), report)

    def reachable(node: Node) -> Node:
        if provider.ssh_key_change(node, key) is None:
            return await_ssh(provider, ssh, node, key, report)
        return await_hosts(provider, node, report)

    return replace(ready, nodes=tuple(values(fanout(reachable, ready.nodes))))
