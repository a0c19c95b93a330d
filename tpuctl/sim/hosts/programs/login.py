"""Sets shell, search path and variables of a login on a host, as sshd does."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.images import IMAGES, Image
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

LISTED = "image.pth"
"""In the host's Python: where the packages of its image are."""

_INSTALLING = threading.Lock()
"""Hosts of a node come up at once, and share what is installed."""

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


def search_path(python: Path) -> str:
    """Return PATH: the programs of the host's `python` come first."""
    return f"{python / 'bin'}:{SYSTEM_PATH}"


def make_python(python: Path, packages: Path, interpreter: str = "") -> None:
    """Make the host's Python, with the folder `packages` in place of what this machine has installed.

    It is this machine's without an `interpreter`. pip installs into it, and never into `packages`.
    """
    programs = python / "bin"
    if not (programs / "python3").exists():
        if interpreter:
            _run([interpreter, "-m", "venv", str(python)])
        else:
            venv.EnvBuilder(symlinks=True).create(python)
    place = next(python.glob("lib/python*/site-packages"))
    (place / LISTED).write_text(f"import site; site.addsitedir({str(packages)!r})\n")
    for program in (packages / "bin").iterdir() if (packages / "bin").is_dir() else ():
        if not os.path.lexists(programs / program.name):
            (programs / program.name).symlink_to(program)


def installed(folder: Path, found: Image, interpreter: str) -> Path:
    """Return the folder with the framework of an image, installed from the index, which takes minutes once.

    What else the image has is of its operating system. Raises OSError where the index does not have it.
    """
    place = folder / f"{found.framework or 'plain'}-{found.framework_version}-{found.python}"
    with _INSTALLING:
        if not place.is_dir():
            draft = place.with_name(f"{place.name}.new")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700, parents=True)
            if found.framework:
                requirement = f"{found.framework}=={found.framework_version}"
                _run([interpreter, "-m", "pip", "install", "--quiet", "--target", str(draft), requirement])
            draft.rename(place)
    return place


def interpreters() -> dict[str, str]:
    """Return version -> path of the Pythons of all images, this machine's or uv's; raises UsageError."""
    return {version: _interpreter(version) for version in sorted({each.python for each in IMAGES.values()})}


def _interpreter(version: str) -> str:
    own = shutil.which(f"python{version}")
    if own and _works([own, "-c", "import ensurepip, venv"]):
        return own
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv and (_works([uv, "python", "find", version]) or _works([uv, "python", "install", version])):
        return subprocess.run([uv, "python", "find", version], capture_output=True, text=True).stdout.strip()
    raise UsageError(
        f"This machine has no Python {version}, which the images of TPU VMs have.",
        hint=f"Install python{version} with its venv, or uv, which gets it from GitHub.",
    )


def _works(command: list[str]) -> bool:
    return not subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode


def _run(command: list[str]) -> None:
    """Run a program of this machine; raises OSError with the end of what it prints."""
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode:
        raise OSError(f"{shlex.join(command)}: {ended.stderr.strip()[-500:]}")


def write_profile(home: Path, path: str) -> None:
    """Have login shells keep PATH, which the system's profile resets; a user's own profile stays."""
    profile = home / ".profile"
    if not profile.exists() or profile.read_text(errors="replace").startswith(PROFILE):
        profile.write_text(f"{PROFILE}PATH={shlex.quote(path)}\nexport PATH\n")
