"""Makes fabric's connections of logins, as copies of one: making each costs as much as logging in."""

from __future__ import annotations

from functools import cache

import fabric
import paramiko


class _Client(paramiko.SSHClient):  # type: ignore[misc]  # paramiko has no annotations
    """What fabric closes: a login that was made here."""

    def __init__(self, transport: paramiko.Transport) -> None:
        super().__init__()
        self._transport = transport


def fabric_connection(transport: paramiko.Transport, worker: str, user: str) -> fabric.Connection:
    """Return fabric's connection over a login that was made here; it ends with that."""
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
    return fabric.Connection(
        "nowhere", config=fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
    )
