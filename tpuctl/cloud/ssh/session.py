"""Runs commands and writes files on one worker, over an open connection.

- Makes fabric's connections of logins, as copies of one: making each costs as much as logging in.
- Connects to TPU hosts by SSH: with our key and their published host keys only.
- Keeps the connections to workers while a command needs them, opened side by side.

  Of very many workers none is kept: a process may open 256 files on macOS.
"""

from __future__ import annotations

import base64
import copy
import hmac
import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import paramiko

from tpuctl.atomic_files import PRIVATE
from tpuctl.cloud.request_log import logged
from tpuctl.cloud.ssh.dialing import (
    ByteStream,
    CommandTimeout,
    Dial,
    Flood,
    authenticate,
    check_private,
    load_key,
    make_key,
    read_public_key,
    translated,
)
from tpuctl.cloud.ssh.process import WINDOW, RemoteProcess
from tpuctl.errors import HostError
from tpuctl.nodes import Node, SshKey
from tpuctl.parallel import Result, allow_open_files, fanout

if TYPE_CHECKING:
    import fabric


class _Client(paramiko.SSHClient):  # type: ignore[misc]  # paramiko has no annotations
    """What fabric closes: a login that was made here."""

    def __init__(self, transport: paramiko.Transport) -> None:
        super().__init__()
        self._transport = transport


def fabric_connection(transport: paramiko.Transport, worker: str, user: str) -> fabric.Connection:
    """Return fabric's connection over a login that was made here; it ends with that."""
    import fabric  # noqa: PLC0415  slow, and commands need none

    connection = fabric.Connection.__new__(fabric.Connection)
    vars(connection).update(
        vars(_pattern()),
        original_host=worker,
        host=worker,
        user=user,
        client=_Client(transport),
        transport=transport,
    )
    return connection


@cache
def _pattern() -> fabric.Connection:
    """A connection to nowhere, with the defaults: the user's own files of SSH and fabric are for other hosts.

    Its configuration changes while fabric makes a connection with it: threads must not share one then.
    """
    import fabric  # noqa: PLC0415  slow, and commands need none

    return fabric.Connection(
        "nowhere", config=fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
    )


MOST_OUTPUT = 1 << 24
"""Bytes of each of a command's streams that are kept."""
PIECE = 1 << 15
"""Bytes of a read or a write."""
TURN = 0.25
"""Seconds after which a wait for one of a command's streams looks at the others."""
COMMAND_TIMEOUT = 120.0


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command on a host."""

    exit_code: int
    stdout: str
    stderr: str


class SshSession:
    """An open connection to one worker."""

    def __init__(self, transport: paramiko.Transport, worker: str, user: str) -> None:
        self.transport = transport
        """The connection itself: for streams and forwarded ports."""
        self._worker = worker
        self._user = user

    @cached_property
    def _connection(self) -> fabric.Connection:
        """The connection as fabric has it, for files."""

        return fabric_connection(self.transport, self._worker, self._user)

    @property
    def is_open(self) -> bool:
        """Whether the connection has not been lost, as far as is known."""
        return bool(self.transport.is_active())

    def run(self, argv: Sequence[str], timeout: float = COMMAND_TIMEOUT, stdin: bytes = b"") -> CommandResult:
        """Run a command and return its result, also that of a failing command; quotes the arguments.

        Raises HostError when the connection is lost, after `timeout` seconds, or for a flood of output.
        """
        target = f"{self._worker}: run {argv[0]}"
        return logged("SSH", target, lambda: self._run(argv, timeout, stdin), lambda done: done.exit_code)

    def _run(self, argv: Sequence[str], timeout: float, stdin: bytes) -> CommandResult:
        with translated(self._worker), Limit(timeout) as limit:
            channel = self._open_channel(timeout)
            limit.bind(channel)
            with channel:
                self._begin(channel, argv)
                out, errors = converse(channel, stdin)
                code = channel.recv_exit_status()
            if code < 0 and self._is_lost():
                raise EOFError
        return CommandResult(code, out.decode(errors="replace"), errors.decode(errors="replace"))

    def _open_channel(self, timeout: float) -> paramiko.Channel:
        try:
            return self.transport.open_session(timeout=timeout)
        except paramiko.SSHException as error:
            if self._is_lost():
                raise EOFError from error
            raise

    def _begin(self, channel: paramiko.Channel, argv: Sequence[str]) -> None:
        try:
            channel.exec_command(shlex.join(argv))
        except paramiko.SSHException as error:
            if self._is_lost():
                raise EOFError from error
            raise paramiko.SSHException("it refused to run a command") from error

    def start(self, argv: Sequence[str], window: int = WINDOW) -> RemoteProcess:
        """Start a command whose streams are read and written meanwhile; quotes the arguments.

        At most `window` bytes of its output are on their way. Raises HostError.
        """
        return RemoteProcess(self.transport, self._worker, shlex.join(argv), window)

    def _is_lost(self) -> bool:
        """Whether the connection has ended: its commands end first, itself a moment later."""
        self.transport.join(0.5)
        return not self.is_open

    def put(self, data: bytes, path: str) -> None:
        """Write a file on the host that only its user can read; `path` is relative to the home folder."""
        logged("SSH", f"{self._worker}: write {path}", lambda: self._put(data, path))

    def _put(self, data: bytes, path: str) -> None:
        with translated(self._worker), Limit(COMMAND_TIMEOUT) as limit:
            files = self._connection.sftp()
            limit.bind(files.get_channel())
            with files.open(path, "wb") as stream:
                stream.chmod(PRIVATE)  # before the first byte, and also for a file that exists
                stream.set_pipelined(True)
                stream.write(data)


# Feeds a command on a worker and reads what it prints, with limits of time and of size.


def converse(channel: paramiko.Channel, data: bytes) -> tuple[bytes, bytes]:
    """Send a command its input, and return what it has printed and its errors; raises Flood."""
    channel.settimeout(TURN)
    out = _Stream(channel.recv, channel.recv_ready)
    errors = _Stream(channel.recv_stderr, channel.recv_stderr_ready)
    unsent = memoryview(data)
    while unsent:
        unsent = _send(channel, unsent)
        out.take_ready()
        errors.take_ready()
    channel.shutdown_write()
    while not (out.has_ended and errors.has_ended):
        errors.take_ready()
        (errors if out.has_ended else out).take()
    return bytes(out.data), bytes(errors.data)


def _send(channel: paramiko.Channel, unsent: memoryview) -> memoryview:
    """Send a piece if there is room for it, and return the rest: none for a command that reads no more."""
    try:
        sent = channel.send(unsent[:PIECE])
    except TimeoutError:
        return unsent
    except OSError:  # its streams show whether the command or the connection has ended
        sent = 0
    return unsent[sent:] if sent else unsent[:0]


class _Stream:
    """What a command prints on one of its streams."""

    def __init__(self, receive: Callable[[int], bytes], is_ready: Callable[[], bool]) -> None:
        self._receive = receive
        self._is_ready = is_ready
        self.data = bytearray()
        self.has_ended = False

    def take_ready(self) -> None:
        """Take all that has arrived."""
        while self._is_ready():
            self.take()

    def take(self) -> None:
        """Wait for a turn until a piece arrives; raises Flood."""
        try:
            piece = self._receive(PIECE)
        except TimeoutError:
            return
        self.has_ended = not piece
        self.data += piece
        if len(self.data) > MOST_OUTPUT:
            raise Flood(f"{MOST_OUTPUT:,}")


class Limit:
    """The time that the block has; raises CommandTimeout at its end if that has passed."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._channel: paramiko.Channel | None = None

    @property
    def _has_passed(self) -> bool:
        return time.monotonic() >= self._deadline

    def bind(self, channel: paramiko.Channel) -> None:
        """Close a channel when the time has passed: waiting for it ends then."""
        self._channel = channel
        if self._has_passed:
            channel.close()

    def __enter__(self) -> Limit:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._has_passed and (error is None or isinstance(error, Exception)):
            raise CommandTimeout from error

    def _end(self) -> None:
        if self._channel is not None:
            with suppress(
                EOFError, OSError, paramiko.SSHException
            ):  # the connection may have ended meanwhile
                self._channel.close()


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


Out = TypeVar("Out")
Connect = Callable[[int], AbstractContextManager[SshSession]]
"""Opens a connection to a worker; raises HostError."""

WIDTH = 64
"""Most workers at once: waiting for them costs a thread each, and little else."""


class Pool:
    """Connections to workers: each is opened at its first use, and closed at the end of the block."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[SshSession, AbstractContextManager[SshSession]]] = {}
        self._is_closed = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
        with ExitStack() as closing:
            for worker in list(self._kept):
                closing.callback(self._close, worker)

    def run_all(
        self, work: Callable[[SshSession, int], Out], workers: Iterable[int]
    ) -> list[Result[int, Out]]:
        """Call `work` with the connection to every worker, and return one result a worker, in their order.

        The error of one is its result, and changes nothing for the others.
        """
        listed = list(workers)

        def run(worker: int) -> Out:
            try:
                return work(self.session(worker), worker)
            finally:
                if len(listed) > WIDTH:
                    self._close(worker)

        return fanout(run, listed, WIDTH)

    def _close(self, worker: int) -> None:
        with self._lock:
            kept = self._kept.pop(worker, None)
        if kept:
            kept[1].__exit__(None, None, None)

    def session(self, worker: int) -> SshSession:
        """Return the connection to a worker; one that was lost is opened again. Raises HostError.

        A worker is for one thread at a time.
        """
        kept = self._kept.get(worker)
        if kept and kept[0].is_open:
            return kept[0]
        self._close(worker)
        connection = self._connect(worker)
        session = connection.__enter__()
        with self._lock:
            if not self._is_closed:
                self._kept[worker] = session, connection
                return session
        connection.__exit__(None, None, None)
        raise HostError(f"worker {worker}: the command ended before it was reached.")
