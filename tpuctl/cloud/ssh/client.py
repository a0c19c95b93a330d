"""Connects to TPU hosts by SSH, through fabric: with our key and their published host keys only."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fabric
import paramiko

from tpuctl.cloud.ssh.dialing import CONNECT_TIMEOUT, ByteStream, Dial
from tpuctl.cloud.ssh.explanations import translated
from tpuctl.cloud.ssh.keys import check_private, make_key, read_public_key
from tpuctl.cloud.ssh.session import SshSession, TimedCommand
from tpuctl.nodes import Node, SshKey


class Ssh:
    """Opens connections with one user and one key; `dial` opens the stream to a worker."""

    def __init__(self, user: str, key: Path, dial: Dial) -> None:
        logging.getLogger("paramiko").addHandler(
            logging.NullHandler()
        )  # else it prints errors that are explained here
        self.user = user
        self.key = key
        self._dial = dial

    def login_key(self) -> SshKey:
        """Return the key that hosts have to accept; one is created when missing. Raises ConfigError."""
        if not self.key.exists():
            make_key(self.key)
        public_key = read_public_key(self.key)
        check_private(self.key)
        return SshKey(self.user, public_key)

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[SshSession]:
        """Open a connection to one worker whose ed25519 host key has to be `host_key` (base64).

        Raises HostError, with the fact `host_key` when the worker has another host key.
        """
        name = f"worker {worker} of '{node.name}'"
        with translated(name):
            connection = self._open(node, worker, host_key)
        try:
            yield SshSession(connection, name)
        finally:
            connection.close()

    def open_stream(self, node: Node, worker: int) -> ByteStream:
        """Return an open stream to a worker's SSH server, for another program's login; raises HostError."""
        with translated(f"worker {worker} of '{node.name}'"):
            return self._dial(node, worker)

    def _open(self, node: Node, worker: int, host_key: str) -> fabric.Connection:
        key = _host_key(host_key)
        alias = f"{node.name}-{worker}"  # its address may be anything: the stream is open
        stream = self._dial(node, worker)
        connection = self._connection(alias, stream)
        connection.client.get_host_keys().add(alias, "ssh-ed25519", key)
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            connection.open()
        except BaseException:
            stream.close()
            raise
        return connection

    def _connection(self, alias: str, stream: ByteStream) -> fabric.Connection:
        return fabric.Connection(
            alias,
            user=self.user,
            connect_timeout=int(CONNECT_TIMEOUT),
            connect_kwargs={
                "key_filename": str(self.key),
                "allow_agent": False,
                "look_for_keys": False,
                "sock": stream,
            },
            config=fabric.Config(overrides={"load_ssh_configs": False, "runners": {"remote": TimedCommand}}),
        )


def _host_key(published: str) -> paramiko.PKey:
    try:
        return paramiko.Ed25519Key(data=base64.b64decode(published, validate=True))
    except (ValueError, IndexError, paramiko.SSHException) as error:
        raise paramiko.SSHException("its published host key is not valid") from error
