"""Connects to TPU hosts by SSH, through fabric: with our key and their published host keys only."""

from __future__ import annotations

import base64
import logging
import os
import shlex
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import fabric
import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from invoke.exceptions import CommandTimedOut

from tpuctl.atomic_files import PRIVATE, READABLE, create_file, replace_file
from tpuctl.errors import ConfigError, HostError
from tpuctl.local.private_folder import make_missing_folders
from tpuctl.nodes import Node, SshKey

CONNECT_TIMEOUT = 20.0
COMMAND_TIMEOUT = 120.0
SSH_PORT = 22


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command on a host."""

    exit_code: int
    stdout: str
    stderr: str


class _Remote(fabric.runners.Remote):  # type: ignore[misc]  # fabric has no annotations
    """A command that knows that it timed out as soon as the library begins to end it.

    The library knows once its timer's thread has ended, which may be too late for the caller.
    """

    _timed_out = False

    def kill(self) -> None:
        """End the command."""
        self._timed_out = True
        with suppress(EOFError, OSError, paramiko.SSHException):  # the connection may have ended meanwhile
            super().kill()

    @property
    def timed_out(self) -> bool:
        """Whether the command was ended because it took longer than its timeout."""
        return self._timed_out


class SshSession:
    """An open connection to one worker."""

    def __init__(self, connection: fabric.Connection, worker: str) -> None:
        self._connection = connection
        self._worker = worker

    def run(self, argv: Sequence[str], timeout: float = COMMAND_TIMEOUT) -> CommandResult:
        """Run a command and return its result, also that of a failing command; quotes the arguments.

        Raises HostError when the connection is lost, or after `timeout` seconds.
        """
        with _translated(self._worker):
            result = self._connection.run(
                shlex.join(argv), hide=True, warn=True, in_stream=False, timeout=timeout
            )
            if result.exited < 0 and self._is_lost():
                raise EOFError("the connection was lost")
        return CommandResult(result.exited, result.stdout, result.stderr)

    def _is_lost(self) -> bool:
        """Whether the connection has ended: its commands end first, itself a moment later."""
        transport = self._connection.transport
        if transport is not None:
            transport.join(0.5)
        return not self._connection.is_connected

    def put(self, data: bytes, path: str) -> None:
        """Write a file on the host that only its user can read; `path` is relative to the home folder."""
        with _translated(self._worker), self._connection.sftp().open(path, "wb") as stream:
            stream.chmod(PRIVATE)  # before the first byte, and also for a file that exists
            stream.set_pipelined(True)
            stream.write(data)


class Ssh:
    """Opens connections with one user and one key; `dial` returns host and port for a node's address."""

    def __init__(self, user: str, key: Path, dial: Callable[[str], tuple[str, int]]) -> None:
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
        _check_private(self.key)
        return SshKey(self.user, public_key)

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[SshSession]:
        """Open a connection to one worker whose ed25519 host key has to be `host_key` (base64).

        Raises HostError, with the fact `host_key` when the worker has another host key.
        """
        name = f"worker {worker} of '{node.name}'"
        with _translated(name):
            host, port = self._dial(node.addresses[worker])
            connection = self._open(host, port, host_key)
        try:
            yield SshSession(connection, name)
        finally:
            connection.close()

    def _open(self, host: str, port: int, host_key: str) -> fabric.Connection:
        key = _host_key(host_key)
        sock = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT)
        # Small packets at once: paramiko leaves Nagle on, which with delayed ACKs costs 40 ms a request.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connection(host, port, sock)
        known_name = host if port == SSH_PORT else f"[{host}]:{port}"
        connection.client.get_host_keys().add(known_name, "ssh-ed25519", key)
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            connection.open()
        except BaseException:
            sock.close()
            raise
        return connection

    def _connection(self, host: str, port: int, sock: socket.socket) -> fabric.Connection:
        return fabric.Connection(
            host,
            user=self.user,
            port=port,
            connect_timeout=int(CONNECT_TIMEOUT),
            connect_kwargs={
                "key_filename": str(self.key),
                "allow_agent": False,
                "look_for_keys": False,
                "sock": sock,
            },
            config=fabric.Config(overrides={"load_ssh_configs": False, "runners": {"remote": _Remote}}),
        )


def make_key(path: Path) -> None:
    """Create an ed25519 key pair without a passphrase, the private half readable by its owner alone.

    Keeps a key that exists. Raises ConfigError when the files cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    try:
        make_missing_folders(path.parent)
        if create_file(path, private, mode=PRIVATE):
            replace_file(path.with_name(path.name + ".pub"), [public + b" tpuctl\n"], mode=READABLE)
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


def _check_private(path: Path) -> None:
    """Raise ConfigError for a key that other users can read, as OpenSSH does: such as one in a clone."""
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        raise ConfigError(
            f"The SSH key {path} can be read by other users of this machine "
            f"(mode {stat.S_IMODE(status.st_mode):04o}).",
            hint=f"If nobody else has it, run 'chmod 600 {path}'; else set ssh_key to another one.",
        )


def _host_key(published: str) -> paramiko.PKey:
    try:
        return paramiko.Ed25519Key(data=base64.b64decode(published, validate=True))
    except (ValueError, IndexError, paramiko.SSHException) as error:
        raise paramiko.SSHException("its published host key is not valid") from error


@contextmanager
def _translated(worker: str) -> Iterator[None]:
    """Turn errors of the SSH libraries inside the block into a HostError; `worker` names it."""
    try:
        yield
    except FAILURES as error:
        text, hint = _explain(error)
        facts = next((known for kind, known in FACTS.items() if isinstance(error, kind)), {})
        raise HostError(f"{worker}: {text}.", hint=hint, **facts) from error


FACTS: dict[type[BaseException], dict[str, str]] = {
    paramiko.BadHostKeyException: {"host_key": "wrong"},
    paramiko.PasswordRequiredException: {},
    paramiko.AuthenticationException: {"login": "refused"},
}
"""Error class and its facts; the first class that matches is used."""
FAILURES = (paramiko.SSHException, EOFError, OSError, CommandTimedOut)


def _explain(error: BaseException) -> tuple[str, str]:
    for kind, text, hint in EXPLANATIONS:
        if isinstance(error, kind):
            return text.format(error=error), hint
    return str(error) or type(error).__name__, f"The host may be down: {SEE_STATE}"


INSTALL_KEY = "Run 'tpuctl up' again: it installs the key."
SEE_STATE = "'tpuctl ls' shows the node's state."

EXPLANATIONS: tuple[tuple[type[BaseException], str, str], ...] = (
    (paramiko.BadHostKeyException, "its host key is not the one it published", "Do not trust this address."),
    (paramiko.PasswordRequiredException, "the SSH key has a passphrase", "Use a key without one."),
    (paramiko.AuthenticationException, "it refused the SSH key", INSTALL_KEY),
    (CommandTimedOut, "a command did not end in time", f"The host may hang: {SEE_STATE}"),
    (socket.timeout, "it did not answer in time", "Check that port 22 is open to you, and the host up."),
    (ConnectionRefusedError, "it refused the connection", f"It may still boot, or be deleted: {SEE_STATE}"),
)
"""Error class, message and hint; the first class that matches is used."""
