"""The command ssh-proxy, which OpenSSH runs: see `tpuctl ssh-config`."""

from __future__ import annotations

import signal
import sys

import click

from tpuctl.cli.progress import show_steps
from tpuctl.cli.remote.reaching import known_hosts_folder
from tpuctl.cli.session import Session, reaching_options, with_session
from tpuctl.flows.remote.byte_relay import relay
from tpuctl.flows.remote.known_hosts import write_known_hosts
from tpuctl.flows.remote.targets import admit, find_hosts
from tpuctl.flows.remote.workers import worker_of_entry


@click.command()
@click.argument("name")
@click.argument("host", default="0")
@with_session
@reaching_options
def ssh_proxy(session: Session, name: str, host: str) -> None:
    """Connect stdin and stdout to the SSH server of a worker, as OpenSSH's ProxyCommand.

    HOST is a worker's number, or its name in an entry of 'tpuctl ssh-config'.

    Looks up where the worker is now, adds your key if it is missing, and writes the published host keys into
    the file that ssh reads afterwards.

    \b
    Example:
      tpuctl ssh-proxy ada-v3-8 0
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # by which ssh ends it: nobody has interrupted anything
    session.keep_quiet()
    provider, ssh, zone = session.cloud.provider, session.cloud.ssh, session.from_flag("zone")
    hosts = find_hosts(provider, name, worker_of_entry(name, host, zone or ""), session.owner, zone)
    with show_steps() as report:
        hosts = admit(provider, ssh, hosts, ssh.login_key(), report)
    write_known_hosts(known_hosts_folder(session), hosts, zone or "")
    stream = ssh.open_stream(hosts.node, hosts.workers[0])
    relay(stream, sys.stdin.fileno(), sys.stdout.fileno())
