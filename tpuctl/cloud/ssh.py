"""SSH to the TPU hosts, through fabric: our key, their published host keys, nothing from ~/.ssh/config."""

from __future__ import annotations

import base64
import io
import logging
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric
import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from invoke.exceptions import CommandTimedOut

from tpuctl.errors import ConfigError, HostError
from tpuctl.files import PRIVATE, create_file
from tpuctl.nodes import Node, SshKey

CONNECT_TIMEOUT = 20.0


@dataclass(frozen=True)
class Output:
    """What a command left behind."""

    code: int
    out: str
    err: str


class _Remote(fabric.runners.Remote):  # type: ignore[misc]  # fabric has no annotations
    """A command that knows of the end of its time, also while the thread of its timer still ends it."""

    _late = False

    def kill(self) -> None:
        """End the command."""
        self._late = True
        with suppress(EOFError, OSError, paramiko.SSHException):  # the connection may have ended meanwhile
            super().kill()

    @property
    def timed_out(self) -> bool:
        """Whether the command was ended because its time was up."""
        return self._late


class Session:
    """An open connection to one worker."""

    def __init__(self, connection: fabric.Connection, where: str) -> None:
        self._connection = connection
        self._where = where

    def run(self, argv: Sequence[str], timeout: float = 120.0) -> Output:
        """Run a command, quoted once, here; a failing command is an Output, a lost host a HostError."""
        with _translated(self._where):
            result = self._connection.run(
                shlex.join(argv), hide=True, warn=True, in_stream=False, timeout=timeout
            )
            if result.exited < 0 and self._is_lost():
                raise EOFError("the connection was lost")
        return Output(result.exited, result.stdout, result.stderr)

    def _is_lost(self) -> bool:
        """Whether the connection has ended; it closes its commands first, and says so a moment later."""
        transport = self._connection.transport
        if transport is not None:
            transport.join(0.5)
        return not self._connection.is_connected

    def put(self, data: bytes, path: str) -> None:
        """Write a file on the host; `path` is relative to the home folder."""
        with _translated(self._where):
            self._connection.put(io.BytesIO(data), path)


class Ssh:
    """Opens connections with one user and one key; `dial` says where an address really answers."""

    def __init__(self, user: str, key: Path, dial: Callable[[str], tuple[str, int]]) -> None:
        logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it prints what we explain
        self.user = user
        self.key = key
        self._dial = dial

    def login_key(self) -> SshKey:
        """Return the key that hosts have to accept; one is created when missing. Raises ConfigError."""
        if not self.key.exists():
            make_key(self.key)
        return SshKey(self.user, read_public_key(self.key))

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[Session]:
        """Open a connection to one worker whose ed25519 host key has to be `host_key` (base64)."""
        where = f"worker {worker} of '{node.name}'"
        with _translated(where):
            host, port = self._dial(node.addresses[worker])
            connection = self._open(host, port, host_key)
        try:
            yield Session(connection, where)
        finally:
            connection.close()

    def _open(self, host: str, port: int, host_key: str) -> fabric.Connection:
        key = _host_key(host_key)
        sock = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT)
        # Small packets at once: paramiko leaves Nagle on, which with delayed ACKs costs 40 ms a request.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        arguments = {
            "key_filename": str(self.key),
            "allow_agent": False,
            "look_for_keys": False,
            "sock": sock,
        }
        connection = fabric.Connection(
            host,
            user=self.user,
            port=port,
            connect_timeout=int(CONNECT_TIMEOUT),
            connect_kwargs=arguments,
            config=fabric.Config(overrides={"load_ssh_configs": False, "runners": {"remote": _Remote}}),
        )
        name = host if port == 22 else f"[{host}]:{port}"
        connection.client.get_host_keys().add(name, "ssh-ed25519", key)
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            connection.open()
        except BaseException:
            sock.close()
            raise
        return connection


def make_key(path: Path) -> None:
    """Make an ed25519 key pair without a passphrase, the private half readable by its owner alone."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if create_file(path, private, mode=PRIVATE):
            path.with_name(path.name + ".pub").write_bytes(public + b" tpuctl\n")
    except OSError as error:
        raise ConfigError(
            f"The SSH key {path} cannot be written: {error.strerror}.", hint="Set ssh_key to another path."
        ) from error


def read_public_key(path: Path) -> str:
    """Return `TYPE BASE64` of a private key file's public half; raises ConfigError when it is unusable."""
    try:
        private = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"The SSH key {path} cannot be used: {error}.",
            hint="It has to be an OpenSSH private key without a passphrase: set ssh_key to another one.",
        ) from error
    line = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return line.decode()


def _host_key(published: str) -> paramiko.PKey:
    try:
        return paramiko.Ed25519Key(data=base64.b64decode(published, validate=True))
    except (ValueError, IndexError, paramiko.SSHException) as error:
        raise paramiko.SSHException("its published host key is garbage") from error


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Turn errors of the SSH libraries inside the block into a HostError; `where` names the worker."""
    try:
        yield
    except FAILURES as error:
        text, hint = _explain(error)
        facts = {"host_key": "wrong"} if isinstance(error, paramiko.BadHostKeyException) else {}
        raise HostError(f"{where}: {text}.", hint=hint, **facts) from error


FAILURES = (paramiko.SSHException, EOFError, OSError, CommandTimedOut)


def _explain(error: BaseException) -> tuple[str, str]:
    for kind, text, hint in EXPLANATIONS:
        if isinstance(error, kind):
            return text.format(error=error), hint
    return str(error) or type(error).__name__, "The host may be down: 'tpuctl ls' shows its state."


EXPLANATIONS: tuple[tuple[Any, str, str], ...] = (
    (paramiko.BadHostKeyException, "its host key is not the one it published", "Do not trust this address."),
    (paramiko.PasswordRequiredException, "the SSH key has a passphrase", "Use a key without one."),
    (
        paramiko.AuthenticationException,
        "it refused the SSH key",
        "Run 'tpuctl up' again: it installs the key.",
    ),
    (CommandTimedOut, "a command did not end in time", "The host may hang: 'tpuctl ls' shows its state."),
    (socket.timeout, "it did not answer in time", "Check that port 22 is open to you, or that it is up."),
    (ConnectionRefusedError, "it refused the connection", "It may still boot, or be gone: see 'tpuctl ls'."),
)
"""First match decides: error class, what to say, what to try."""
