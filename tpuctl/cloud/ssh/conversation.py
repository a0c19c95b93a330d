"""Feeds a command on a worker and reads what it prints, with limits of time and of size."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

import paramiko

from tpuctl.cloud.ssh.explanations import CommandTimeout, Flood

MOST_OUTPUT = 1 << 24
"""Bytes of each of a command's streams that are kept."""
PIECE = 1 << 15
"""Bytes of a read or a write."""
TURN = 0.25
"""Seconds after which a wait for one of a command's streams looks at the others."""


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
