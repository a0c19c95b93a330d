"""Adds our SSH key to a node, and waits until every host answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.errors import DeadlineError, HostError
from tpuctl.flows.progress import Report
from tpuctl.nodes import Node, SshKey
from tpuctl.parallel import fanout, values
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh

KEY_TIMEOUT = 120.0
SSH_TIMEOUT = 300.0


def install_key(provider: Provider, node: Node, key: SshKey, report: Report) -> None:
    """Let a key log in on every host of a node, unless it may already."""
    change = provider.ssh_key_change(node, key)
    if change is None:
        return
    report(f"adding your SSH key to {node.name}")
    provider.begin(change).wait("to accept the SSH key", KEY_TIMEOUT)


def await_ssh(provider: Provider, ssh: Ssh, node: Node, report: Report) -> None:
    """Return once every host runs a command.

    Keys take seconds to arrive on the hosts, and a first boot takes longer. Raises HostError that names the
    worker, DeadlineError when the host keys are not published.
    """
    report(f"waiting for SSH on {len(node.addresses)} host{'s' if len(node.addresses) > 1 else ''}")
    keys = _host_keys(provider, node)
    values(fanout(lambda worker: _await_worker(ssh, node, worker, keys[worker]), range(len(node.addresses))))


def _host_keys(provider: Provider, node: Node) -> Mapping[int, str]:
    def every_key() -> Mapping[int, str] | None:
        keys = provider.host_keys(node.id)
        return keys if len(keys) == len(node.addresses) else None

    return poll(
        every_key,
        awaiting=f"the host keys of '{node.name}'",
        timeout=SSH_TIMEOUT,
        hint="They come with guest attributes: check that the project has not disabled them.",
    )


def _await_worker(ssh: Ssh, node: Node, worker: int, host_key: str) -> None:
    reason = ""

    def runs_a_command() -> bool | None:
        nonlocal reason
        try:
            with ssh.connect(node, worker, host_key) as session:
                exit_code = session.run(["true"]).exit_code
        except HostError as error:
            if "host_key" in error.facts:
                raise  # another attempt would only reach the impostor again
            reason = f"{error.message} {error.hint}"
            return None
        reason = f"'true' ended with exit code {exit_code}."
        return True if exit_code == 0 else None

    try:
        poll(runs_a_command, awaiting=f"SSH on worker {worker}", timeout=SSH_TIMEOUT)
    except DeadlineError as error:
        raise HostError(f"Worker {worker} of '{node.name}' is not reachable: {reason}") from error
