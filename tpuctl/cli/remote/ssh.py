"""The command ssh."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import NoReturn

import click

from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.remote.after_dashes import AfterDashes
from tpuctl.cli.remote.reaching import find_worker, login, worker_option
from tpuctl.cli.session import Session, dry_run_option, reaching_options, with_session
from tpuctl.errors import ConfigError, UsageError
from tpuctl.flows.remote import openssh
from tpuctl.flows.remote.targets import Hosts, admission_requests, admit

CHANGED_SIGNALS = ("SIGPIPE", "SIGXFSZ")
"""Python ignores them, and a program that it becomes would inherit that."""


class _Command(AfterDashes):
    words = "[-- [OPTION OF SSH]... [COMMAND]...]"


@click.command(cls=_Command)
@click.argument("name", required=False)
@worker_option
@dry_run_option
@with_session
@reaching_options
def ssh(
    session: Session, name: str | None, worker: str | None, dry_run: bool, words: tuple[str, ...]
) -> None:
    """Log in on a worker of a TPU (default: your only TPU) with the system's OpenSSH, or run a command there.

    NAME@3 is worker 3. After -- come options of ssh, such as -L 6006:localhost:6006, and a command. Your SSH
    key is added to the TPU if it is missing, also to one that somebody else made. Only the host key that the
    worker has published is accepted. Other settings are those of your ~/.ssh/config. The exit code is that
    of ssh.

    \b
    Example:
      tpuctl ssh
      tpuctl ssh ada-v3-8 --worker 1 -- nproc
    """
    if session.as_json and not dry_run:
        raise UsageError("--json shows what --dry-run would do.", hint="Add --dry-run, or remove --json.")
    program = openssh.find_program()
    key = session.cloud.ssh.login_key()
    hosts = find_worker(session, name, worker)
    if dry_run:
        _show_command(session, hosts, openssh.command(program, login(session, hosts), words))
        return
    with show_steps() as report:
        admitted = admit(session.cloud.provider, session.cloud.ssh, hosts, key, report)
    command = openssh.command(program, login(session, admitted), words)
    session.close()
    hand_over(command)


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
