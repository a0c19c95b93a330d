"""Opens the stream of bytes to a worker's port 22.

- Makes and reads the SSH key that logs in on hosts.
- Makes an authenticated SSH connection of an open stream, in a bounded time.
- Keeps the host keys of first contact, for projects whose policy forbids hosts to publish theirs.
- Turns errors of the SSH libraries into a HostError that names the worker.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko.ssh_exception import IncompatiblePeer

from tpuctl.atomic_files import PRIVATE, READABLE, create_file, replace_file
from tpuctl.errors import ConfigError, HostError, cause
from tpuctl.local.private_folder import make_missing_folders, make_private_folder
from tpuctl.nodes import Node
from tpuctl.parallel import fanout

_LARGEST = 64 << 10
"""Bytes of a private key file: one of RSA with 16,384 bits has 13 kB."""


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
        private = serialization.load_ssh_private_key(_read(path), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"The SSH key {path} cannot be used: {error}.",
            hint="It has to be an OpenSSH private key without a passphrase: set ssh_key to another one.",
        ) from error
    line = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return line.decode()


def _read(path: Path) -> bytes:
    """Return a key file's bytes; the tpuctl.toml of a project from elsewhere may name a pipe or a device."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        content = stream.read(_LARGEST + 1) or b""
    if len(content) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST >> 10} KiB")
    return content


def load_key(path: Path) -> paramiko.PKey:
    """Return the private key of a file; raises ConfigError when it is unusable."""
    read_public_key(path)
    return paramiko.PKey.from_path(path)


def check_private(path: Path) -> None:
    """Raise ConfigError for a key that other users can read, as OpenSSH does: such as one in a clone."""
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        raise ConfigError(
            f"The SSH key {path} can be read by other users of this machine "
            f"(mode {stat.S_IMODE(status.st_mode):04o}).",
            hint=f"If nobody else has it, run 'chmod 600 {path}'; else set ssh_key to another one.",
        )


KEEP_ALIVE = 15
"""Seconds without traffic after which a packet is sent: a stream whose other end is gone then fails."""
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")
"""In order of preference: GCM needs no digest, which paramiko compares byte by byte in Python."""
HOST_KEY_TYPE = "ssh-ed25519"
"""The type of the keys that nodes publish; a host may have keys of other types too."""


def authenticate(
    stream: ByteStream, host_key: paramiko.PKey, user: str, key: paramiko.PKey
) -> paramiko.Transport:
    """Return the connection over a stream, which is closed when this fails.

    Raises paramiko's errors, and SilentHost when the host stops answering.
    """
    transport = _transport(stream)
    try:
        _begin(transport)
        _check(transport, host_key)
        _await(transport, "the login", lambda event: transport.auth_publickey(user, key, event))
        if not transport.is_authenticated():
            raise transport.get_exception() or paramiko.AuthenticationException("no login")
    except BaseException:
        transport.packetizer.complete_handshake()  # else its timer delays the end of the program
        transport.close()
        raise
    transport.set_keepalive(KEEP_ALIVE)
    return transport


def presented_key(stream: ByteStream) -> str:
    """Return the host key (base64) that answers over a stream, which is closed; raises as `authenticate`."""
    transport = _transport(stream)
    try:
        _begin(transport)
        return str(transport.get_remote_server_key().get_base64())
    finally:
        transport.packetizer.complete_handshake()
        transport.close()


def _transport(stream: ByteStream) -> paramiko.Transport:
    try:
        return paramiko.Transport(stream)
    except BaseException:
        stream.close()
        raise


def _begin(transport: paramiko.Transport) -> None:
    _prefer(transport)
    _await(transport, "the begin of the connection", transport.start_client)


def _prefer(transport: paramiko.Transport) -> None:
    options = transport.get_security_options()
    options.ciphers = CIPHERS
    options.key_types = (HOST_KEY_TYPE,)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = 2 * CONNECT_TIMEOUT
    transport.channel_timeout = CONNECT_TIMEOUT


def _await(transport: paramiko.Transport, step: str, begin: Callable[[threading.Event], object]) -> None:
    """Begin a step, and wait for the event of its end; raises the error that ended the connection."""
    event = threading.Event()
    begin(event)
    if not event.wait(CONNECT_TIMEOUT):
        raise SilentHost(step)
    if not transport.is_active() and not transport.is_authenticated():
        raise _reason(transport)


def _reason(transport: paramiko.Transport) -> BaseException:
    """Return the error that has ended a connection: EOFError or ConnectionError where the host did."""
    error: BaseException | None = transport.get_exception()
    cause = error.__context__ if error else EOFError()
    return cause if isinstance(cause, (EOFError, ConnectionError)) else error or EOFError()


def _check(transport: paramiko.Transport, host_key: paramiko.PKey) -> None:
    presented = transport.get_remote_server_key()
    if presented != host_key:
        raise paramiko.BadHostKeyException("the worker", presented, host_key)


class FirstContact:
    """The key that each worker of a node showed when it was first reached from here; no other is trusted."""

    def __init__(self, folder: Path, dial: Dial) -> None:
        self._folder = folder
        self._dial = dial

    def keys(self, node: Node) -> Mapping[int, str]:
        """Return the key of each worker that was or can be reached, in base64."""
        make_private_folder(self._folder)
        results = fanout(lambda worker: self._key(node, worker), range(len(node.addresses)))
        return {result.item: result.value for result in results if result.value}

    def _key(self, node: Node, worker: int) -> str:
        """Return a worker's key; empty while it does not answer."""
        path = self._folder / re.sub(r"[^A-Za-z0-9.-]", "-", f"{node.id.uid or node.name}.{worker}")
        if not path.exists():
            try:
                create_file(path, presented_key(self._dial(node, worker)).encode(), mode=PRIVATE)
            except (paramiko.SSHException, EOFError, OSError, HostError):
                return ""
        return path.read_text()


class SilentHost(Exception):
    """The host has stopped answering; says at which step."""


class CommandTimeout(Exception):
    """A command has not ended in its time."""


class Flood(Exception):
    """A command has printed more than is kept; says how many bytes that is."""


@contextmanager
def translated(worker: str) -> Iterator[None]:
    """Turn errors of the SSH libraries inside the block into a HostError; `worker` names it."""
    try:
        yield
    except FAILURES as error:
        text, hint = _explain(error)
        facts = next((known for kind, known in FACTS.items() if isinstance(error, kind)), {})
        raise HostError(f"{worker}: {text}.", hint=hint, **facts) from cause(error)


FACTS: dict[type[BaseException], dict[str, str]] = {
    paramiko.BadHostKeyException: {"host_key": "wrong"},
    paramiko.AuthenticationException: {"login": "refused"},
}
"""Error class and its facts; the first class that matches is used."""
FAILURES = (paramiko.SSHException, EOFError, OSError, SilentHost, CommandTimeout, Flood)


def _explain(error: BaseException) -> tuple[str, str]:
    for kind, text, hint in EXPLANATIONS:
        if isinstance(error, kind):
            return text.format(error=error), hint
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__, f"The host may be down: {SEE_STATE}"


ADD_KEY = (
    "The same command adds it again, where another client has overwritten it.\n"
    "Wait until the hosts know it, or learn why they do not: tpuctl wait NAME"
)
SEE_STATE = "'tpuctl ls' shows the node's state."

EXPLANATIONS: tuple[tuple[type[BaseException], str, str], ...] = (
    (
        paramiko.BadHostKeyException,
        "its host key is not the one it published",
        "Do not trust this address. With --host-keys first-contact it is not the first one: if Google has "
        "repaired the host, remove the worker's file from host-keys in tpuctl's state folder.",
    ),
    (paramiko.AuthenticationException, "it refused the SSH key", ADD_KEY),
    (IncompatiblePeer, "it speaks another SSH: {error}", "Is it a host of this TPU? " + SEE_STATE),
    (CommandTimeout, "a command did not end in time", f"The host may hang: {SEE_STATE}"),
    (SilentHost, "it did not answer in time, at {error}", f"The host may boot or hang: {SEE_STATE}"),
    (Flood, "a command printed more than {error} bytes", "Look at what a login runs there: ~/.bashrc."),
    (socket.timeout, "it did not answer in time", "Check that port 22 is open to you, and the host up."),
    (ConnectionRefusedError, "it refused the connection", f"It may still boot, or be deleted: {SEE_STATE}"),
    (ConnectionError, "it closed the connection", f"It may boot, or be deleted: {SEE_STATE}"),
    (EOFError, "it closed the connection", f"It may boot, or be deleted: {SEE_STATE}"),
)
"""Error class, message and hint; the first class that matches is used."""


CONNECT_TIMEOUT = 20.0
"""Seconds for each step of a connection: reaching the host, the key exchange, the login."""
LOST_AFTER = 60
"""Seconds without an acknowledgement after which a connection counts as lost: the laptop slept, or the
network changed."""


class ByteStream(Protocol):
    """An open stream to an SSH server: a socket, or a tunnel that has a socket's methods.

    A call that waits longer than the timeout raises TimeoutError; one on a lost stream OSError.
    """

    def send(self, data: bytes, /) -> int:
        """Send some of the bytes and return how many."""

    def recv(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end of the stream."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Set the seconds after which `send` and `recv` give up; None for never."""

    def shutdown(self, how: int, /) -> None:
        """Say that no more is sent, read, or both, as `socket.SHUT_RDWR`."""

    def close(self) -> None:
        """Close the stream; a `recv` in another thread ends."""


class Dial(Protocol):
    """Opens the stream to a worker of a node."""

    def __call__(self, node: Node, worker: int, /) -> ByteStream:
        """Return the open stream; raises HostError, or OSError with a sentence."""


def dial_address(host: str, port: int) -> socket.socket:
    """Return a TCP connection; raises OSError."""
    connection = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT)
    # Small packets at once: paramiko leaves Nagle on, which with delayed ACKs costs 40 ms a request.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in LIMITS:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


def _limits() -> Iterator[tuple[int, int]]:
    """Yield the options of TCP, with their values, that this system has for the loss of a connection."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux, in milliseconds
        yield socket.TCP_USER_TIMEOUT, 1000 * LOST_AFTER
    if hasattr(socket, "TCP_RXT_CONNDROPTIME"):  # macOS, in seconds
        yield socket.TCP_RXT_CONNDROPTIME, LOST_AFTER


LIMITS = tuple(_limits())
