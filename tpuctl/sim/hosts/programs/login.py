"""Sets shell, search path and variables of a login on a host, as sshd does."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuctl.sim.hosts.programs.programs import Command

SHELL = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMITS = "ulimit -S -n 1024; ulimit -S -c 0"
"""The soft limits of a login on Ubuntu: open files, size of a core file. The simulator raises its own."""
FULL = f"{LIMITS}; ulimit -S -f 0"
"""On a full disk no file can grow."""
BECOME = 'exec -a "$0" "$@"' if SHELL.endswith("bash") else 'exec "$@"'
ACCEPTED = ("LANG", "LC_")
"""The variables that sshd on Ubuntu accepts from a client (AcceptEnv LANG LC_*); it drops others."""

PROFILE = "# Written by the simulator at each start, until you change this line.\n"


@dataclass(frozen=True)
class Peer:
    """Both ends of an SSH connection."""

    client: tuple[str, int]
    server: tuple[str, int]


def command_line(
    command: str | None, environment: Mapping[str, str], home: Path, *, full: bool = False
) -> Command:
    """Return the program for `ssh HOST COMMAND`; None is a login shell, `full` is a full disk."""
    name = os.path.basename(SHELL)
    limits = f"{FULL if full else LIMITS}; {BECOME}"
    shell = [f"-{name}", SHELL, "-l"] if command is None else [name, SHELL, "-c", command]
    return Command(SHELL, [name, "-c", limits, *shell], environment, home)


def login_environment(user: str, peer: Peer, offered: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that sshd sets, and those of the client's `offered` ones that it accepts."""
    (client, client_port), (server, server_port) = peer.client, peer.server
    return {
        "USER": user,
        "LOGNAME": user,
        "SHELL": SHELL,
        "LANG": "C.UTF-8",
        "SSH_CLIENT": f"{client} {client_port} {server_port}",
        "SSH_CONNECTION": f"{client} {client_port} {server} {server_port}",
        **{
            name: value
            for name, value in offered.items()
            if name == ACCEPTED[0] or name.startswith(ACCEPTED[1])
        },
    }


def search_path(host_folder: Path) -> str:
    """Return PATH: the interpreter that has the packages comes first, as `python3`."""
    python = Path(sys.executable)
    folder = python.parent if _runs(python.parent / "python3") else _own_python(host_folder / "bin", python)
    return f"{folder}:{SYSTEM_PATH}"


def write_profile(home: Path, path: str) -> None:
    """Have login shells keep PATH, which the system's profile resets; a user's own profile stays."""
    profile = home / ".profile"
    if not profile.exists() or profile.read_text(errors="replace").startswith(PROFILE):
        profile.write_text(f"{PROFILE}PATH={shlex.quote(path)}\nexport PATH\n")


def _own_python(folder: Path, python: Path) -> Path:
    """A script, not a link: through a link Python would not find its virtual environment."""
    folder.mkdir(mode=0o700, exist_ok=True)
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n')
    script.chmod(0o700)
    return folder


def _runs(path: Path) -> bool:
    return os.access(path, os.X_OK)
