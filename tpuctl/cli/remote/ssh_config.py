"""The command ssh-config."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from tpuctl.cli import output, printing
from tpuctl.cli.remote.reaching import known_hosts_folder, proxy_command
from tpuctl.cli.session import Session, reaching_options, with_session
from tpuctl.config import files
from tpuctl.errors import UsageError
from tpuctl.flows.remote import openssh
from tpuctl.flows.remote.known_hosts import known_hosts_file
from tpuctl.flows.remote.ssh_config_file import SshConfig
from tpuctl.flows.remote.ssh_entries import SIM_SUFFIX, Entry, entry, find_nodes
from tpuctl.nodes import Node


@click.command("ssh-config")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Entries of all your TPUs.")
@click.option("--install", is_flag=True, help="Add the entries to ~/.ssh/config, in a file each.")
@click.option("--remove", is_flag=True, help="Take the entries out of ~/.ssh/config again.")
@with_session
@reaching_options
def ssh_config(
    session: Session, names: tuple[str, ...], everything: bool, install: bool, remove: bool
) -> None:  # fmt: skip
    """Print or install entries for 'ssh NAME', VS Code, scp and rsync: of these TPUs, or of your only one.

    NAME is worker 0, NAME.w3 is worker 3; on the simulator NAME.sim and NAME.w3.sim. Each time an entry
    is used, it looks up where the TPU is now: it holds also for one that is made anew under its name. Of two
    TPUs of one name, and with --zone, it is NAME.ZONE and NAME.ZONE.w3, in that zone alone.

    \b
    Example:
      tpuctl ssh-config --install
    """
    if install and remove:
        raise UsageError("--install and --remove exclude each other.", hint="Remove one of them.")
    if names and everything:
        raise UsageError("Names and --all exclude each other.", hint="Remove one of them.")
    config = SshConfig(files.home(os.environ))
    if remove:
        _show_removed(session, config.remove(_place(session), names, everything=everything))
        return
    provider = session.cloud.provider
    zone = session.from_flag("zone")
    nodes, unreachable = find_nodes(provider, names, session.owner, zone, everything=everything)
    names_of_all = [node.name for node in nodes]
    in_zone = {name for name in names_of_all if zone or names_of_all.count(name) > 1}
    entries = [_entry(session, node, node.zone if node.name in in_zone else "") for node in nodes]
    if install:
        config.install(entries)
    _show_entries(session, entries, is_installed=install)
    for zone in unreachable:
        output.note(f"Warning: no answer from {zone}: TPUs there get no entry now.")


def _entry(session: Session, node: Node, zone: str) -> Entry:
    ssh, suffix = session.cloud.ssh, SIM_SUFFIX if session.config.target == "sim" else ""
    known_hosts = known_hosts_file(known_hosts_folder(session).absolute(), node.id, zone)
    words = ["ssh-proxy", node.name, *(["--zone", zone] if zone else [])]
    options = {
        **openssh.options(ssh.user, ssh.key.absolute(), known_hosts),
        **openssh.KEEP_ALIVE,
        "ProxyCommand": f"{proxy_command(session, words)} %h",
    }
    return entry(node, _place(session), suffix, options, zone)


def _place(session: Session) -> str:
    """Where nodes are, so that two of one name are told apart: a project, or a simulator by its folder."""
    if session.config.target == "sim":
        return f"the simulator in {files.state_folder()}"
    return f"project {session.config.require('project')}"


def _show_entries(session: Session, entries: Sequence[Entry], *, is_installed: bool) -> None:
    if session.as_json:
        rows = [{"node": item.node, "hosts": item.hosts, "text": item.text} for item in entries]
        output.json({"installed": is_installed, "entries": rows})
    elif is_installed:
        output.note(f"ssh knows {', '.join(name for item in entries for name in item.hosts)}.")
        output.hint(f"ssh {entries[0].hosts[0]}")
    else:
        for item in entries:
            for line in item.text.splitlines():
                printing.write_code(line)


def _show_removed(session: Session, names: Sequence[str]) -> None:
    if session.as_json:
        output.json({"removed": names})
    else:
        output.note(f"ssh no longer knows {', '.join(names)}." if names else "There is no entry to remove.")
