"""Writes the programs that come first in the PATH of a simulated shell, and the files that they name.

Each runs the next program of its name in PATH, after its own folder. OpenSSH gets a configuration (`-F`)
that adds the simulated hosts to the user's own and the system's, because simulated SSH servers cannot listen
on port 22 without root. gcloud gets a home of its own, because it keeps its key and the keys of hosts in
`~/.ssh`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import asyncssh

from tpuctl.atomic_files import replace_file
from tpuctl.sim.state.private_file import write_private

EXECUTABLE = 0o700
KEY = "google_compute_engine"
"""What gcloud calls its key."""

PROGRAM = """\
#!/bin/sh
# Runs the next {name} in PATH{purpose}. Written by tpuctl's simulator.
found=
rest=$PATH:
while [ -n "$rest" ]; do
    program=${{rest%%:*}}/{name}
    rest=${{rest#*:}}
    if [ "$program" -ef "$0" ]; then
        found=  # what comes before could lead back here
    elif [ -z "$found" ] && [ -f "$program" ] && [ -x "$program" ]; then
        found=$program
    fi
done
if [ -z "$found" ]; then
    echo "{name}: not found" >&2
    exit 127
fi
{setting}exec "$found" {options}"$@"
"""
SSH_PROGRAMS = ("ssh", "scp", "sftp")

SSH_CONFIG = """\
# Read first: the simulated hosts that are up. Written by tpuctl's simulator.
Include {hosts}

Host {addresses}
  ProxyCommand sh -c 'echo "No simulated host answers at %h." >&2; exit 1'

Host *
Include ~/.ssh/config
Include /etc/ssh/ssh_config
"""
SIMULATED = " ".join(f"127.{number}.*" for number in range(64, 128))
"""Addresses that only simulated hosts have; where none is up, this machine's own SSH server would answer."""


class Programs:
    """The programs, in a folder of their own below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self._home = folder / "home"
        self._ssh_config = folder / "ssh_config"

    def write(self, hosts: Path) -> None:
        """Write every program; `hosts` is the OpenSSH configuration of the hosts that are up."""
        for part in (self.folder, self._home, self._home / ".ssh"):
            part.mkdir(mode=0o700, exist_ok=True)
        config = SSH_CONFIG.format(hosts=_quoted(hosts), addresses=SIMULATED)
        write_private(self._ssh_config, config.encode())
        for name in SSH_PROGRAMS:
            options = f"-F {shlex.quote(str(self._ssh_config))} "
            self._write(name, purpose=", with simulated hosts in its configuration", options=options)
        home = f"HOME={shlex.quote(str(self._home))} "
        self._write("gcloud", purpose=", with a home in which it keeps its SSH keys", setting=home)
        self._write_key()

    def _write(self, name: str, *, purpose: str, setting: str = "", options: str = "") -> None:
        text = PROGRAM.format(name=name, purpose=purpose, setting=setting, options=options)
        replace_file(self.folder / name, [text.encode()], mode=EXECUTABLE)

    def _write_key(self) -> None:
        """Make gcloud's key, for which it would else ask a passphrase."""
        private = self._home / ".ssh" / KEY
        if not private.exists():
            key = asyncssh.generate_private_key("ssh-ed25519", comment="simulator")
            write_private(private.with_name(f"{KEY}.pub"), key.export_public_key())
            write_private(private, key.export_private_key())


def _quoted(path: Path) -> str:
    """Return a path as one word of OpenSSH's configuration."""
    return f'"{path}"'
