"""Finds the one worker that a command reaches, and says how OpenSSH gets there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tpuctl.cli.remote.hosts import find
from tpuctl.cli.session import Session
from tpuctl.client.nodes.hosts import host_name
from tpuctl.config.files import state_folder
from tpuctl.errors import UsageError
from tpuctl.flows.remote import openssh
from tpuctl.flows.remote.known_hosts import key_alias, write_known_hosts
from tpuctl.flows.remote.targets import Hosts
from tpuctl.flows.remote.workers import chosen_workers, only_worker
from tpuctl.nodes import Node

PINNED = ("target", "project", "ssh_user", "ssh_key", "host_keys")
"""The settings by which a command of another program reaches the same hosts from any folder."""

worker_option = click.option("--worker", metavar="N", help="Number of the worker; default: 0.")


def find_worker(session: Session, name: str | None, worker: str | None) -> Hosts:
    """Return the one worker that `NAME`, `NAME@3` or `--worker 3` means, by default worker 0.

    Raises UsageError for several, and as `find_hosts` does.
    """
    host = host_name(name or "")
    hosts = find(session, host, chosen_workers(host, worker, only_worker(0)))
    if len(hosts.workers) > 1:
        raise UsageError(
            f"{len(hosts.workers)} workers are named, and this command reaches one.",
            hint="On several at once: tpuctl exec NAME -- COMMAND",
        )
    return hosts


def known_hosts_folder(session: Session) -> Path:
    """Return the folder of the host keys of a target's nodes."""
    return state_folder() / "ssh" / session.config.target


def login(session: Session, hosts: Hosts) -> openssh.Login:
    """Return how OpenSSH reaches the one worker of `hosts`; writes its host key into a file of ours."""
    (worker,), node, ssh = hosts.workers, hosts.node, session.cloud.ssh
    return openssh.Login(
        ssh.user,
        ssh.key.absolute(),
        write_known_hosts(known_hosts_folder(session), hosts, node.zone),
        key_alias(node, worker),
        session.cloud.ssh_address(node, worker),
        _proxy(session, node, worker),
    )


def proxy_command(session: Session, arguments: Sequence[str]) -> str:
    """Return a command of tpuctl that runs with this session's target from any folder."""
    config = session.config
    names = [name for name in PINNED if name != "project" or config.target != "sim"]
    variables = {f"TPUCTL_{name.upper()}": config.require(name) for name in names}
    if iap := config.get("iap"):
        variables["TPUCTL_IAP"] = iap
    variables["TPUCTL_SSH_KEY"] = str(session.cloud.ssh.key.absolute())
    variables["TPUCTL_STATE"] = str(state_folder())
    return openssh.proxy_command(variables, arguments)


def _proxy(session: Session, node: Node, worker: int) -> str:
    """Return ours where no address reaches the worker, none on the simulator, else that of the user."""
    if session.cloud.ssh_address(node, worker) is None:
        return proxy_command(session, ["ssh-proxy", node.name, str(worker), "--zone", node.zone])
    return "none" if session.config.target == "sim" else ""
