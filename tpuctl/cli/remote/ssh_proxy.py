"""The command ssh-proxy, which OpenSSH runs: see `tpuctl ssh-config`."""

from __future__ import annotations

import sys

import click

from tpuctl.cli.progress import show_steps
from tpuctl.cli.remote.reaching import find_worker, known_hosts_folder
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.remote.byte_relay import relay
from tpuctl.flows.remote.known_hosts import write_known_hosts
from tpuctl.flows.remote.targets import admit


@click.command()
@click.argument("name")
@click.argument("worker", default="0")
@with_session
def ssh_proxy(session: Session, name: str, worker: str) -> None:
    """Connect stdin and stdout to the SSH server of a worker, as OpenSSH's ProxyCommand.

    Looks up where the worker is now, adds your key if it is missing, and writes the published host keys into
    the file that ssh reads afterwards.

    \b
    Example:
      tpuctl ssh-proxy ada-v3-8 0
    """
    session.keep_quiet()
    ssh = session.cloud.ssh
    hosts = find_worker(session, name, worker.rpartition("-w")[2].removesuffix(".tpuctl"))
    with show_steps() as report:
        hosts = admit(session.cloud.provider, ssh, hosts, ssh.login_key(), report)
    write_known_hosts(known_hosts_folder(session), hosts)
    stream = ssh.open_stream(hosts.node, hosts.workers[0])
    relay(stream, sys.stdin.fileno(), sys.stdout.fileno())
