"""Adds our SSH key to a node, and waits until every host answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.errors import DeadlineError, HostError, in_one_line
from tpuctl.flows.hosts import os_login
from tpuctl.flows.hosts.metadata import change_metadata
from tpuctl.flows.progress import Report
from tpuctl.nodes import Node, SshKey
from tpuctl.nodes.readiness import require_ready
from tpuctl.parallel import fanout, values
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

SSH_TIMEOUT = 300.0
OS_LOGIN_PATIENCE = 30.0
"""Seconds for which a host of a project with OS Login may refuse a key that its profile has: it boots."""
LOOK_INTERVAL = 2.0
"""Seconds between looks at the node while its hosts do not answer, whatever their number."""


def grant_access(provider: Provider, ssh: Ssh, node: Node, key: SshKey, report: Report) -> Node:
    """Let a key log in, wait until every host runs a command, and return the node.

    Raises PreemptedError or StateError when the node ends meanwhile, HostError that names the worker,
    DeadlineError when the host keys are not published.
    """
    node = install_key(provider, node, key, report)
    await_ssh(provider, ssh, node, key, report)
    return node


def install_key(provider: Provider, node: Node, key: SshKey, report: Report) -> Node:
    """Let a key log in on every host of a node, unless it may already; return the node with it.

    Keys of other users that are added at the same time stay: the metadata is read again until it has ours.
    """
    if provider.ssh_key_change(node, key) is None:
        return node
    report(f"adding your SSH key to {node.name}")
    changed = change_metadata(
        provider, node, lambda current: provider.ssh_key_change(current, key), "to accept the SSH key"
    )
    return require_ready(changed)


def await_ssh(provider: Provider, ssh: Ssh, node: Node, key: SshKey, report: Report) -> None:
    """Return once every host runs a command.

    Keys take seconds to arrive on the hosts, and a first boot takes longer. Raises as `grant_access` does.
    """
    report(f"waiting for SSH on {len(node.addresses)} host{'s' if len(node.addresses) > 1 else ''}")
    keys = _host_keys(provider, node)
    watch = _NodeWatch(provider, node, key, report)
    hosts = range(len(node.addresses))
    values(fanout(lambda worker: _await_worker(ssh, watch, worker, keys[worker]), hosts))


class _NodeWatch:
    """Looks at the node while its hosts do not answer: it may have ended, or have lost our key."""

    def __init__(self, provider: Provider, node: Node, key: SshKey, report: Report) -> None:
        self.node = node
        self._provider = provider
        self._key = key
        self._report = report
        self._lock = threading.Lock()
        self._began = self._last = time.monotonic()

    def look(self, *, refused: bool) -> None:
        """Raise PreemptedError or StateError if the node has ended; add our key again if it is lost.

        `refused`: a host has refused our key. Raises HostError when it will go on to do so.
        """
        with self._lock:
            if time.monotonic() - self._last < LOOK_INTERVAL:
                return
            current = require_ready(self._provider.get_node(self.node.id))
            install_key(self._provider, current, self._key, self._report)
            self._last = time.monotonic()
            waited = self._last - self._began
            if refused and waited >= OS_LOGIN_PATIENCE and self._provider.ignores_ssh_keys(current.metadata):
                raise os_login.refusal(current)


def _host_keys(provider: Provider, node: Node) -> Mapping[int, str]:
    def every_key() -> Mapping[int, str] | None:
        keys = provider.host_keys(node.id)
        if len(keys) == len(node.addresses):
            return keys
        require_ready(provider.get_node(node.id))
        return None

    return poll(
        every_key,
        awaiting=f"the host keys of '{node.name}'",
        timeout=SSH_TIMEOUT,
        hint="They come with guest attributes. Where an organization policy forbids those, --host-keys "
        "first-contact trusts the key that answers first.",
    )


def _await_worker(ssh: Ssh, watch: _NodeWatch, worker: int, host_key: str) -> None:
    reason = ""

    def runs_a_command() -> bool | None:
        nonlocal reason
        try:
            with ssh.connect(watch.node, worker, host_key) as session:
                exit_code = session.run(["true"]).exit_code
        except HostError as error:
            if "host_key" in error.facts:
                raise  # another attempt would only reach the impostor again
            reason = in_one_line(error)
            watch.look(refused="login" in error.facts)
            return None
        reason = f"'true' ended with exit code {exit_code}."
        return True if exit_code == 0 else None

    try:
        poll(runs_a_command, awaiting=f"SSH on worker {worker}", timeout=SSH_TIMEOUT)
    except DeadlineError as error:
        raise HostError(f"Worker {worker} of '{watch.node.name}' is not reachable: {reason}") from error
