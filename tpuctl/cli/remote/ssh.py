"""The command ssh.

- The command ssh-config.
- The command ssh-proxy, which OpenSSH runs: see `tpuctl ssh-config`.
- The command forward.
"""

from __future__ import annotations

import getopt
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.remote.exec import (
    AfterDashes,
    find_run,
    find_worker,
    known_hosts_folder,
    login,
    proxy_command,
    require_one,
    run_option,
    worker_option,
)
from tpuctl.cli.session import Session, dry_run_option, reaching_options, with_session
from tpuctl.config import files
from tpuctl.errors import ConfigError, UsageError
from tpuctl.flows.hosts.way_in import patient_ssh
from tpuctl.flows.remote import forwarding as flow
from tpuctl.flows.remote import openssh
from tpuctl.flows.remote.copy import relay
from tpuctl.flows.remote.execution import command_argv
from tpuctl.flows.remote.forwarding import Listener, is_port, listen, parse_ports
from tpuctl.flows.remote.openssh import (
    SIM_SUFFIX,
    Entry,
    SshConfig,
    entry,
    find_nodes,
    known_hosts_file,
    write_known_hosts,
)
from tpuctl.flows.remote.targets import Hosts, admission_requests, admit, find_hosts, worker_of_entry
from tpuctl.nodes import Node

CHANGED_SIGNALS = ("SIGPIPE", "SIGXFSZ")
"""Python ignores them, and a program that it becomes would inherit that."""


class _Command(AfterDashes):
    words = "[-- [OPTION OF SSH]... [COMMAND]...]"


@click.command(cls=_Command)
@click.argument("name", required=False)
@worker_option
@run_option
@dry_run_option
@with_session
@reaching_options
def ssh(
    session: Session,
    name: str | None,
    worker: str | None,
    run: str | None,
    dry_run: bool,
    words: tuple[str, ...],
) -> None:
    """Log in on a worker of a TPU (default: your only TPU) with the system's OpenSSH, or run a command there.

    NAME@3 is worker 3. With --run, the shell or the command has the run's code, packages and variables. After
    -- come options of ssh, such as -L 6006:localhost:6006, and a command. Your SSH key is added to the TPU if
    it is missing, also to one that somebody else made. Only the host key that the worker has published is
    accepted. Other settings are those of your ~/.ssh/config. The exit code is that of ssh.

    \b
    Example:
      tpuctl ssh
      tpuctl ssh ada-v3-8 --worker 1 -- nproc
      tpuctl ssh --run digits-20260131-120000
    """
    if session.as_json and not dry_run:
        raise UsageError("--json shows what --dry-run would do.", hint="Add --dry-run, or remove --json.")
    program = openssh.find_program()
    key = session.cloud.ssh.login_key()
    if run:
        hosts, entry = find_run(session, run, name, worker)
        hosts, words = require_one(hosts), _entering(words, entry)
    else:
        hosts = find_worker(session, name, worker)
    if dry_run:
        _show_command(session, hosts, openssh.command(program, login(session, hosts), words))
        return
    with show_steps() as report:
        admitted = admit(session.cloud.provider, session.cloud.ssh, hosts, key, report)
    command = openssh.command(program, login(session, admitted), words)
    session.close()
    hand_over(command)


def _entering(words: Sequence[str], entry: Sequence[str]) -> tuple[str, ...]:
    """Return words for ssh by which its command, or a shell on a terminal, starts with `entry`."""
    try:
        _, command = getopt.getopt(list(words), openssh.LETTERS)
    except getopt.GetoptError as error:
        raise UsageError(f"ssh has no such option: {error.msg}.") from error
    own = words[: len(words) - len(command)]
    if not command:
        return (*own, "-t", shlex.join(entry))
    return (*own, shlex.join([*entry, *command_argv([" ".join(command)])]))


def _show_command(session: Session, hosts: Hosts, command: list[str]) -> None:
    """Show the request that adds the key, if it is missing, and the command."""
    cloud = session.cloud
    requests = admission_requests(cloud.provider, hosts.node, cloud.ssh.login_key())
    if session.as_json:
        output.json({"requests": requests, "command": command})
        return
    output.requests(requests, as_json=False)
    printing.write_code(shlex.join(command))


# Hands the terminal over to another program, which replaces this one.


def hand_over(command: list[str]) -> NoReturn:
    """Become another program: it has the terminal, all signals, and this process's exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    for name in CHANGED_SIGNALS:
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606  no shell is wanted
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be run: {error.strerror}.") from error


@click.command("ssh-config")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Entries of all your TPUs.")
@click.option("--install", is_flag=True, help="Add the entries to ~/.ssh/config, in a file each.")
@click.option("--remove", is_flag=True, help="Take the entries out of ~/.ssh/config again.")
@with_session
@reaching_options
def ssh_config(
    session: Session, names: tuple[str, ...], everything: bool, install: bool, remove: bool
) -> None:
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


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] [LOCAL:]PORT...")
@worker_option
@with_session
@reaching_options
def forward(session: Session, words: tuple[str, ...], worker: str | None) -> None:
    """Forward ports of this machine to a worker of a TPU (default: your only TPU), until Ctrl-C.

    6006 is port 6006 here and there, 16006:6006 is 16006 here, :6006 is any free port here. Only programs on
    this machine can connect. A connection that is lost, as when a laptop sleeps, is opened again.

    \b
    Example:
      tpuctl forward 6006
      tpuctl forward ada-v3-8 16006:6006 8888 --worker 1
    """
    name = None if not words or is_port(words[0]) else words[0]
    pairs = [parse_ports(word) for word in words[name is not None :]]
    if not pairs:
        raise UsageError("Which port?", hint=f"Such as: tpuctl forward {name or ''} 6006".replace("  ", " "))
    provider, ssh = session.cloud.provider, session.cloud.ssh
    hosts = find_worker(session, name, worker)
    listeners = listen(pairs)
    try:
        admitted = admit(provider, ssh, hosts, ssh.login_key(), output.note)
        patient = patient_ssh(provider, ssh, admitted.node)
        flow.forward(
            provider,
            patient,
            admitted,
            listeners,
            output.note,
            lambda: _show_ports(session, admitted, listeners),
        )
    finally:
        for listener in listeners:
            listener.close()


def _show_ports(session: Session, hosts: Hosts, listeners: Sequence[Listener]) -> None:
    (worker,), name = hosts.workers, hosts.node.name
    if session.as_json:
        ports = [{"local": item.ports.local, "remote": item.ports.remote} for item in listeners]
        output.json_line({"node": name, "worker": worker, "address": "127.0.0.1", "ports": ports})
        return
    for item in listeners:
        printing.write_at_once(
            f"localhost:{item.ports.local} is port {item.ports.remote} of worker {worker} of {name}"
        )
    output.note("Press Ctrl-C to end.")
