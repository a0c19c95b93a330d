"""Finds out who uses this host: a run of tpuctl, somebody logged in, or a program that holds TPU chips."""

from __future__ import annotations

import fcntl
import glob
import os
import pwd
import re
import struct
from typing import Iterator, Set

CHIPS = ("/dev/accel", "/dev/vfio/")
SSHD = re.compile(rb"sshd(-session)?: [^\s\[]+@")
"""Title of sshd's process of somebody logged in: `sshd: ada@pts/0`, without a terminal `sshd: ada@notty`."""
LOCKS = ".tpuctl/runs/*/*/*lock"
"""Below a home: held by the supervisor of a run, and by its script, as long as they live."""
UTMP = "var/run/utmp"
UTMP_ENTRY = struct.Struct("<hxxi32s4s32s256shhiii16s20s")
"""struct utmp of Linux, 384 bytes: utmp(5)."""
USER_PROCESS = 7


class Activity:
    """Looks at one host; `root` stands for the root of its file system, `home` is one more home."""

    def __init__(self, root: str = "/", home: str = "") -> None:
        self._root = root
        self._home = home

    def reasons(self) -> Iterator[str]:
        """Yield what uses the host now; nothing for a host that is idle."""
        folders = {os.path.dirname(lock) for lock in self._locks() if _is_held(lock)}
        yield from ("run %s, attempt %s" % tuple(folder.split(os.sep)[-2:]) for folder in sorted(folders))
        yield from sorted({"%s is logged in" % user for user in (*self._sessions(), *self._terminals())})
        yield from self._holders()

    def _locks(self) -> Set[str]:
        homes = {self._home} - {""}
        if self._root == "/":
            homes |= {entry.pw_dir for entry in pwd.getpwall()} | set(glob.glob("/home/*"))
        return {lock for home in homes for lock in glob.glob(os.path.join(glob.escape(home), LOCKS))}

    def _sessions(self) -> Iterator[str]:
        for process in self._processes():
            try:
                with open(os.path.join(process, "cmdline"), "rb") as stream:
                    title = stream.read(200)
            except OSError:  # it has ended meanwhile
                continue
            if SSHD.match(title):
                yield title.partition(b": ")[2].partition(b"@")[0].decode("utf-8", "replace")

    def _terminals(self) -> Iterator[str]:
        """Yield who has a terminal by utmp; those of tmux and screen stay there when nobody looks."""
        try:
            with open(os.path.join(self._root, UTMP), "rb") as stream:
                content = stream.read(UTMP_ENTRY.size * 10_000)
        except OSError:
            return
        for entry in UTMP_ENTRY.iter_unpack(content[: len(content) // UTMP_ENTRY.size * UTMP_ENTRY.size]):
            kind, pid, user, host = entry[0], entry[1], entry[4], entry[5]
            if kind == USER_PROCESS and not host.startswith((b"tmux(", b":")) and _is_alive(pid):
                yield user.rstrip(b"\0").decode("utf-8", "replace")

    def _holders(self) -> Iterator[str]:
        for process in self._processes():
            if any(_target(path).startswith(CHIPS) for path in glob.iglob(os.path.join(process, "fd", "*"))):
                yield "process %s holds TPU chips" % os.path.basename(process)

    def _processes(self) -> Iterator[str]:
        return glob.iglob(os.path.join(self._root, "proc", "[0-9]*"))


def _is_held(path: str) -> bool:
    try:
        with open(path, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    """utmp keeps entries of sessions that a crash ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return pid > 0


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # it has been closed meanwhile
        return ""
