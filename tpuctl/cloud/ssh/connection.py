"""Opens fabric's connections to workers, as copies of one: making each costs as much as logging in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import paramiko

from tpuctl.cloud.ssh.dialing import ByteStream
from tpuctl.cloud.ssh.handshake import authenticate

if TYPE_CHECKING:
    import fabric


class _Client(paramiko.SSHClient):  # type: ignore[misc]  # paramiko has no annotations
    """What fabric closes: a login that was made here."""

    def __init__(self, transport: paramiko.Transport) -> None:
        super().__init__()
        self._transport = transport


def open_connection(
    worker: str, stream: ByteStream, host_key: paramiko.PKey, user: str, key: paramiko.PKey
) -> fabric.Connection:
    """Return the connection over a stream, which is closed when this fails; raises as `authenticate`."""
    import fabric  # noqa: PLC0415  slow, and `tpuctl ssh` opens no connection of ours

    transport = authenticate(stream, host_key, user, key)
    connection = fabric.Connection.__new__(fabric.Connection)
    vars(connection).update(
        vars(_pattern()),
        original_host=worker, host=worker, user=user, client=_Client(transport), transport=transport,
    )  # fmt: skip
    return connection


@cache
def _pattern() -> fabric.Connection:
    """A connection to nowhere, with the defaults: the user's own files of SSH and fabric are for other hosts.

    Its configuration changes while fabric makes a connection with it: threads must not share one then.
    """
    import fabric  # noqa: PLC0415  as above

    return fabric.Connection(
        "nowhere", config=fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
    )
