"""File transfer on a host: paths as they are, relative ones from its home."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh


class HomeSftp(asyncssh.SFTPServer):
    """asyncssh's SFTP server, started in the host's home instead of the simulator's working directory."""

    def __init__(self, home: Path, channel: asyncssh.SSHServerChannel[bytes]) -> None:
        super().__init__(channel)
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        """Return the local path for one that the client gave."""
        return os.path.join(self._home, path)

    def exit(self) -> None:
        """Report success at the end, as sftp-server does: scp fails without."""
        self.channel.exit(0)
