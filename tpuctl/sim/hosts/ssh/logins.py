"""Shows who is logged in on a host, as sshd's own processes do in /proc of a real one."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path


class Logins:
    """A folder `proc/N/` for each connection, whose `cmdline` is the title of sshd's process for it.

    The folder stands for the root of the host's file system: the machine's own /proc shows every host.
    """

    def __init__(self, view: Path) -> None:
        self._proc = view / "proc"
        self._numbers = count(1)
        shutil.rmtree(self._proc, ignore_errors=True)
        self._proc.mkdir(parents=True, mode=0o700)

    def add(self, user: str) -> Path:
        """Show that a user is logged in; returns what `remove` takes."""
        entry = self._proc / str(next(self._numbers))
        entry.mkdir(mode=0o700)
        (entry / "cmdline").write_text(f"sshd: {user}@notty")
        return entry

    def remove(self, entry: Path) -> None:
        """Show that the user has logged out."""
        shutil.rmtree(entry, ignore_errors=True)
