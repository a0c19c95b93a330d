"""Connects to TPU hosts by SSH: with our key and their published host keys only."""

from __future__ import annotations

import base64
import copy
import hmac
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import paramiko

from tpuctl.cloud.request_log import logged
from tpuctl.cloud.ssh.dialing import ByteStream, Dial
from tpuctl.cloud.ssh.explanations import translated
from tpuctl.cloud.ssh.handshake import authenticate
from tpuctl.cloud.ssh.keys import check_private, load_key, make_key, read_public_key
from tpuctl.cloud.ssh.pool import Pool
from tpuctl.cloud.ssh.session import SshSession
from tpuctl.nodes import Node, SshKey
from tpuctl.parallel import allow_open_files


class Ssh:
    """Opens connections with one user and one key; `dial` opens the stream to a worker."""

    def __init__(self, user: str, key: Path, dial: Dial) -> None:
        logging.getLogger("paramiko").addHandler(
            logging.NullHandler()
        )  # else it prints errors that are explained here
        allow_open_files()  # `exec` holds a connection to each host
        self.user = user
        self.key = key
        self._dial = dial
        self._may_come: Callable[[], bool] = lambda: False

    def patient(self, may_come: Callable[[], bool]) -> Ssh:
        """Return one that logs in again, as often as `may_come()`, on a host that refuses the key."""
        other = copy.copy(self)
        other._may_come = may_come
        return other

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

        Raises HostError, with the fact `host_key` when the worker has another host key, and ConfigError for
        an unusable key of ours.
        """
        name = f"worker {worker} of '{node.name}'"
        key = self._private_key
        with translated(name):
            published = _host_key(host_key)
            transport = self._login(node, worker, published, key)
        try:
            yield SshSession(transport, name, self.user)
        finally:
            transport.close()

    def _login(
        self, node: Node, worker: int, host_key: paramiko.PKey, key: paramiko.PKey
    ) -> paramiko.Transport:
        while True:
            try:
                return logged(
                    "SSH",
                    f"worker {worker} of '{node.name}': log in as {self.user}",
                    lambda: authenticate(self._dial(node, worker), host_key, self.user, key),
                )
            except paramiko.AuthenticationException:
                if not self._may_come():
                    raise

    def open_stream(self, node: Node, worker: int) -> ByteStream:
        """Return an open stream to a worker's SSH server, for another program's login; raises HostError."""
        with translated(f"worker {worker} of '{node.name}'"):
            return self._dial(node, worker)

    def pool(self, node: Node, host_key: Callable[[int], str]) -> Pool:
        """Return the connections to a node's workers, which are opened at their first use within its block.

        `host_key` returns the key of a worker, or raises HostError.
        """
        return Pool(lambda worker: self.connect(node, worker, host_key(worker)))

    def derived_key(self, purpose: str) -> str:
        """Return a secret for a purpose: always the same with our key, and nobody's without it.

        So a launch that was killed goes on with the secret of those workers that it had started.
        """
        self._private_key  # noqa: B018  read for its error
        return hmac.new(self.key.read_bytes(), purpose.encode(), "sha256").hexdigest()

    @cached_property
    def _private_key(self) -> paramiko.PKey:
        """Our key, which is read once for all connections."""
        return load_key(self.key)


def _host_key(published: str) -> paramiko.PKey:
    try:
        return paramiko.Ed25519Key(data=base64.b64decode(published, validate=True))
    except (ValueError, IndexError, paramiko.SSHException) as error:
        raise paramiko.SSHException("its published host key is not valid") from error
