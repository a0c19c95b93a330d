"""Serves SFTP on a host: absolute paths are those of this machine, relative ones start at the host's home."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable
from pathlib import Path

import asyncssh

from tpuctl.sim.hosts.programs.disk_full import is_full


class HomeSftp(asyncssh.SFTPServer):
    """asyncssh's SFTP server, started in the host's home instead of the simulator's working directory."""

    def __init__(self, home: Path, channel: asyncssh.SSHServerChannel[bytes]) -> None:
        super().__init__(channel)
        self._folder = home
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        """Return the local path for one that the client gave."""
        return os.path.join(self._home, path)

    def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        """Open a file; on a full disk none can be created or truncated."""
        self._require_room(asyncssh.FXF_CREAT | asyncssh.FXF_TRUNC, pflags)
        return super().open(path, pflags, attrs)

    def write(self, file_obj: object, offset: int, data: bytes) -> int | Awaitable[int]:
        """Write into a file, unless the disk is full."""
        self._require_room(1, 1)
        return super().write(file_obj, offset, data)

    def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Make a folder, unless the disk is full."""
        self._require_room(1, 1)
        super().mkdir(path, attrs)

    def _require_room(self, growing: int, flags: int) -> None:
        if flags & growing and is_full(self._folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def exit(self) -> None:
        """Report success at the end, as sftp-server does; scp fails otherwise."""
        self.channel.exit(0)
