"""Opens fabric's connections to workers, with one configuration for all: reading it again costs 100 ms."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import paramiko

from tpuctl.cloud.ssh.dialing import ByteStream
from tpuctl.cloud.ssh.handshake import authenticate

if TYPE_CHECKING:
    import fabric


class _Client(paramiko.SSHClient):  # type: ignore[misc]  # paramiko has no annotations
    """What fabric opens: a login over a stream that is open, with one key, at a host whose key is known."""

    def __init__(self, stream: ByteStream, host_key: paramiko.PKey, key: paramiko.PKey) -> None:
        super().__init__()
        self._stream = stream
        self._host_key = host_key
        self._key = key

    def connect(self, *, username: str, **_: object) -> None:
        """Log in, whatever else fabric's configuration proposes."""
        self._transport = authenticate(self._stream, self._host_key, username, self._key)


def open_connection(
    worker: str, stream: ByteStream, host_key: paramiko.PKey, user: str, key: paramiko.PKey
) -> fabric.Connection:
    """Return the connection over a stream, which is closed when this fails; raises as `authenticate`."""
    import fabric  # noqa: PLC0415  slow, and `tpuctl ssh` opens no connection of ours

    connection = fabric.Connection(worker, user=user, config=_configuration())
    connection.client = _Client(stream, host_key, key)
    connection.open()
    return connection


@cache
def _configuration() -> fabric.Config:
    """The defaults: the user's own files of SSH and fabric are for other hosts."""
    import fabric  # noqa: PLC0415  as above

    return fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
