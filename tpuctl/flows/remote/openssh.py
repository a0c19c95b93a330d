"""Builds command lines and options of the system's OpenSSH: our key, and published host keys only."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuctl.errors import ConfigError

KEEP_ALIVE = {"ServerAliveInterval": "30", "ServerAliveCountMax": "4", "ConnectTimeout": "120"}
"""A dead connection ends after two minutes; less than the ten after which Google's firewalls forget one.

So does a host that accepts connections and says nothing: ssh itself would wait for ever."""
FOREIGN = ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG")
"""Variables that say whose credentials a command uses: paths, and no secrets."""


@dataclass(frozen=True)
class Login:
    """How OpenSSH reaches one worker."""

    user: str
    key: Path
    known_hosts: Path
    alias: str
    """The name of its key in `known_hosts`."""
    address: tuple[str, int] | None
    """Host and port; None where only the proxy command reaches it."""
    proxy: str
    """The proxy command: `none`, or empty to use that of the user's configuration, such as a jump host."""


def find_program(name: str = "ssh") -> str:
    """Return the path of a program of OpenSSH; raises ConfigError without it."""
    path = shutil.which(name)
    if path is None:
        raise ConfigError(
            f"There is no '{name}' on this machine's PATH.",
            hint="Install OpenSSH's client (Debian and Ubuntu: 'sudo apt install openssh-client').",
        )
    return path


def options(user: str, key: Path, known_hosts: Path) -> dict[str, str]:
    """Return the options that every login has, as lines of ssh_config(5).

    The user's own known_hosts is neither read nor written; an unknown or another key is refused.
    """
    return {
        "User": user,
        "IdentityFile": _path(key),
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": _path(known_hosts),
        "GlobalKnownHostsFile": os.devnull,
        "StrictHostKeyChecking": "yes",
        "HostKeyAlgorithms": "ssh-ed25519",
        "CheckHostIP": "no",
        "UpdateHostKeys": "no",
        "VerifyHostKeyDNS": "no",
    }


def command(program: str, login: Login, words: Sequence[str]) -> list[str]:
    """Return the command line of ssh; `words` are options of its own, then a command.

    A keep-alive that `words` name is theirs; the user's configuration holds for all that is not set here.
    """
    host, port = login.address or (login.alias, 22)
    given = " ".join(words).lower()
    settings = options(login.user, login.key, login.known_hosts) | {"HostKeyAlias": login.alias}
    settings |= {name: value for name, value in KEEP_ALIVE.items() if name.lower() not in given}
    if login.proxy:
        settings["ProxyCommand"] = login.proxy
    settings.pop("User")
    pairs = [f"-o{name}={value}" for name, value in settings.items()]
    return [program, *pairs, "-p", str(port), f"{login.user}@{host}", *words]


def proxy_command(variables: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Return a command of tpuctl for OpenSSH to run in any folder, with these variables alone.

    With this Python, and never with a module of the folder in which ssh is called (`-P`).
    """
    inherited = {name: os.path.abspath(os.environ[name]) for name in FOREIGN if os.environ.get(name)}
    pairs = {**inherited, **variables, "TPUCTL_CONFIG": os.devnull}
    environment = [f"{name}={value}" for name, value in pairs.items()]
    line = shlex.join(["env", *environment, sys.executable, "-P", "-m", "tpuctl", *arguments])
    return line.replace("%", "%%")


def _path(path: Path) -> str:
    """Return a path as one word of ssh_config(5): a line that ssh cannot read ends it for every host."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
