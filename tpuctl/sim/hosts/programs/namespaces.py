"""Gives the programs of a host a name and an /etc/hosts of their own, by namespaces of Linux.

Programs enter by `nsenter`, which costs about a millisecond. Root makes the namespaces without another
process; other users need a user namespace, which some systems refuse them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tpuctl.sim.hosts.programs.programs import Command

CLONE_NEWNS, CLONE_NEWUTS = 0x20000, 0x4000000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
"""Of <sched.h> and <sys/mount.h>. MS_SLAVE: what this machine mounts later is seen, nothing goes back."""

ETC_HOSTS = Path("/etc/hosts")
OF_ROOT = ("mnt", "uts")
OF_USER = ("user", "mnt", "uts")
OPTIONS = {"user": "--user", "mnt": "--mount", "uts": "--uts"}
AS_USER = ("--user", "--map-current-user", "--keep-caps", "--mount", "--uts", "--propagation", "slave")
SET_UP = 'hostname "$0" && mount --bind "$1" /etc/hosts && echo && read -r _'
PROBE_TIMEOUT = 10


class Namespaces:
    """The namespaces of one host; `descriptors` keep them alive between its programs, by kind."""

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self._descriptors = dict(descriptors)

    def enter(self, command: Command) -> Command:
        """Return the command that becomes this one inside."""
        if not self._descriptors:
            return command
        nsenter = str(enterer())
        argv = [nsenter, *self._options(), f"--wdns={command.folder}", "--", command.program]
        return replace(command, program=nsenter, argv=[*argv, *command.argv[1:]], folder=Path("/"))

    def close(self) -> None:
        """Forget them; they last as long as a program is inside."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _options(self) -> list[str]:
        places = {kind: f"/proc/{os.getpid()}/fd/{number}" for kind, number in self._descriptors.items()}
        own_user = ["--preserve-credentials"] if "user" in places else []
        return [*(f"{OPTIONS[kind]}={place}" for kind, place in places.items()), *own_user]


def make(hostname: str, hosts: Path, inside: Callable[[], set[int]]) -> Namespaces:
    """Return namespaces with this name, and `hosts` as /etc/hosts; empty ones where the system has none.

    `inside` returns the host's processes that outlived a killed simulator: programs of another user than root
    see them only from the same namespaces. Blocks for some milliseconds.
    """
    for maker in (_made_as_root, lambda *_: _joined(inside()), _made_as_user):
        try:
            namespaces = Namespaces(maker(hostname, hosts))
        except (OSError, subprocess.SubprocessError):
            continue
        if _works(namespaces):
            return namespaces
        namespaces.close()
    return Namespaces({})


@cache
def enterer() -> str | None:
    """Return the path of an `nsenter` that can set the working directory; None without one."""
    path = shutil.which("nsenter")
    if path is None or not ETC_HOSTS.exists():
        return None
    text = subprocess.run([path, "--help"], capture_output=True, text=True, check=False).stdout
    return path if "--wdns" in text else None


def _made_as_root(hostname: str, hosts: Path) -> dict[str, int]:
    """A thread of its own leaves this machine's namespaces, and ends; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    name, source = os.fsencode(hostname), os.fsencode(hosts)
    made: dict[str, int] = {}
    errors: list[OSError] = []

    def check(status: int) -> None:
        if status:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def leave() -> None:
        try:
            check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS))
            check(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None))
            check(libc.sethostname(name, len(name)))
            check(libc.mount(source, os.fsencode(ETC_HOSTS), None, MS_BIND, None))
            made.update(_opened("thread-self", OF_ROOT))
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=leave, name=f"namespaces of {hostname}", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made


def _made_as_user(hostname: str, hosts: Path) -> dict[str, int]:
    """A shell makes them, and waits until they are open here; raises OSError."""
    command = ["unshare", *AS_USER, "sh", "-c", SET_UP, hostname, str(hosts)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as shell:
        assert shell.stdout is not None
        if not shell.stdout.readline():
            raise PermissionError("the system refuses namespaces")
        return _opened(str(shell.pid), OF_USER)


def _joined(inside: set[int]) -> dict[str, int]:
    """Those of the first process that is not in the simulator's own user namespace; raises OSError."""
    own = os.stat("/proc/self/ns/user").st_ino
    for pid in sorted(inside):
        if os.stat(f"/proc/{pid}/ns/user").st_ino != own:
            return _opened(str(pid), OF_USER)
    raise FileNotFoundError("no process of the host is in a user namespace")


def _opened(process: str, kinds: tuple[str, ...]) -> dict[str, int]:
    return {kind: os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds}


_WORKING: set[tuple[str, ...]] = set()


def _works(namespaces: Namespaces) -> bool:
    """Whether a program can enter: it may be forbidden although making them was not. Asked once a kind."""
    kinds = tuple(namespaces._descriptors)
    if kinds not in _WORKING:
        probe = namespaces.enter(Command("/bin/sh", ["sh", "-c", ":"], {}, Path("/")))
        try:
            subprocess.run(probe.argv, env={}, stderr=subprocess.DEVNULL, timeout=PROBE_TIMEOUT, check=True)
        except (OSError, subprocess.SubprocessError):
            return False
        _WORKING.add(kinds)
    return True
