"""Keeps a connection to a worker open for forwarded ports, until the user ends it or the node ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from tpuctl import polling
from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    ConfigError,
    HostError,
    NotFoundError,
    PreemptedError,
    StateError,
    TpuctlError,
)
from tpuctl.flows.progress import Report
from tpuctl.flows.remote.forwarding.link import Link
from tpuctl.flows.remote.forwarding.listeners import Listener
from tpuctl.flows.remote.forwarding.service import Service
from tpuctl.flows.remote.targets import Hosts
from tpuctl.nodes.readiness import require_running
from tpuctl.polling import Backoff, Sleep

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

PULSE = 15.0
"""Seconds between signs of life: a laptop that wakes up notices a dead connection after that and SILENCE."""
SILENCE = 10.0
BACKOFF = Backoff(first=0.5, longest=15.0, factor=2.0)
FATAL = (ConfigError, NotFoundError, PreemptedError)


def forward(
    provider: Provider, ssh: Ssh, hosts: Hosts, listeners: Sequence[Listener], report: Report,
    ready: Callable[[], None], sleep: Sleep = polling.sleep,
) -> NoReturn:  # fmt: skip
    """Serve the listeners with ports of the one worker of `hosts`, until Ctrl-C; closes them at the end.

    Calls `ready` once there is a connection.

    A lost connection is opened again, with pauses that grow. Raises the error of the first connection;
    later PreemptedError, StateError or NotFoundError once the node has ended, and HostError for another host
    key than the published one.
    """
    link = Link()
    with Service(listeners, link, report):
        reason = _connected(ssh, hosts, link, ready)
        while True:
            report(f"{reason}; connecting again")
            hosts, reason = _connected_again(provider, ssh, hosts, link, report, sleep)


def _connected_again(
    provider: Provider, ssh: Ssh, hosts: Hosts, link: Link, report: Report, sleep: Sleep
) -> tuple[Hosts, str]:
    """Return once another connection was opened and lost, with what was found and why it was lost."""
    before = ""
    for pause in BACKOFF.pauses():
        try:
            hosts = _looked_up(provider, hosts)
            return hosts, _connected(ssh, hosts, link, lambda: report("connected again"))
        except FATAL:
            raise
        except TpuctlError as error:
            if "host_key" in error.facts:
                raise
            if error.message != before:
                report(error.message)
            before = error.message
        sleep(pause)
    raise AssertionError("pauses() has no end")


def _looked_up(provider: Provider, hosts: Hosts) -> Hosts:
    """Return the hosts as they are now; raises one of FATAL, or HostError for a node that may return."""
    node = provider.get_node(hosts.node.id)
    if node.state.becomes_ready:
        raise HostError(f"Node '{node.name}' is {node.provider_state}.")
    try:
        require_running(node)
    except StateError as error:
        raise NotFoundError(error.message, hint=error.hint) from error
    if node.missing_hosts:
        raise HostError(f"Node '{node.name}' is {node.provider_state}, but {node.missing_hosts}.")
    return replace(hosts, node=node, host_keys=provider.host_keys(node.id))


def _connected(ssh: Ssh, hosts: Hosts, link: Link, opened: Callable[[], None]) -> str:
    """Open a connection, call `opened`, and return why the connection was lost."""
    from tpuctl.cloud.ssh.ports import HostPorts  # noqa: PLC0415  paramiko

    (worker,) = hosts.workers
    with ssh.connect(hosts.node, worker, hosts.host_key(worker)) as session:
        ports = HostPorts(session.transport)
        link.attach(ports)
        opened()
        try:
            while not ports.is_lost_within(PULSE):
                if not ports.answers(SILENCE):
                    return f"worker {worker} of '{hosts.node.name}' does not answer"
        finally:
            link.attach(None)
    return f"the connection to worker {worker} of '{hosts.node.name}' was lost"
