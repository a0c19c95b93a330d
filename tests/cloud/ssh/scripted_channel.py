"""A channel and a connection as paramiko has them, which do what a test says and nothing else."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

import paramiko


class ScriptedChannel:
    """A command's streams: bytes that come, or errors that are raised; both streams end after them."""

    def __init__(
        self,
        out: Iterable[bytes | Exception] = (),
        errors: Iterable[bytes | Exception] = (),
        sends: Iterable[int | Exception] = (),
        code: int = 0,
    ) -> None:
        self.out = deque(out)
        self.errors = deque(errors)
        self.sends = deque(sends)
        """How many bytes the next writes take; all of them after these."""
        self.code = code
        self.sent: list[bytes] = []
        self.calls: list[str] = []
        self.closed = threading.Event()
        self.commands: list[str] = []
        self.refusal: Exception | None = None
        self.timeout = 0.0

    def exec_command(self, command: str) -> None:
        if self.refusal:
            raise self.refusal
        self.commands.append(command)

    def settimeout(self, seconds: float) -> None:
        self.timeout = seconds

    def recv_ready(self) -> bool:
        return bool(self.out) and isinstance(self.out[0], bytes)

    def recv_stderr_ready(self) -> bool:
        return bool(self.errors) and isinstance(self.errors[0], bytes)

    def recv(self, size: int) -> bytes:
        self.calls.append("out")
        return self._next(self.out, size)

    def recv_stderr(self, size: int) -> bytes:
        self.calls.append("errors")
        return self._next(self.errors, size)

    def send(self, data: bytes) -> int:
        size = self.sends.popleft() if self.sends else len(data)
        if isinstance(size, Exception):
            raise self._possible(size)
        self.sent.append(bytes(data[:size]))
        return size

    def shutdown_write(self) -> None:
        self.calls.append("end of input")

    def shutdown(self, how: int) -> None:
        self.calls.append(f"shutdown {how}")

    def recv_exit_status(self) -> int:
        return self.code

    def close(self) -> None:
        self.closed.set()

    def __enter__(self) -> ScriptedChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, stream: deque[bytes | Exception], size: int) -> bytes:
        piece = stream.popleft() if stream else b""
        if isinstance(piece, Exception):
            raise self._possible(piece)
        assert len(piece) <= size
        return piece

    def _possible(self, error: Exception) -> Exception:
        """An error that paramiko may raise."""
        assert self.timeout > 0 or not isinstance(error, TimeoutError), "without a timeout it waits for ever"
        return error


class ScriptedTransport:
    """A connection with one channel."""

    def __init__(
        self, channel: ScriptedChannel | Exception, *, is_lost: bool = False, is_late: bool = False
    ) -> None:
        self.channel = channel
        self.is_lost = is_lost
        self.is_late = is_late
        """Whether its loss shows only to who waits for its end."""
        self.opened: list[dict[str, object]] = []
        self.joined: list[float] = []

    def open_session(self, **options: object) -> ScriptedChannel:
        self.opened.append(options)
        if isinstance(self.channel, Exception):
            raise self.channel
        return self.channel

    def open_channel(self, kind: str, *place: object, timeout: float) -> ScriptedChannel:
        return self.open_session(kind=kind, place=place)

    def is_active(self) -> bool:
        return not self.is_lost or (self.is_late and not self.joined)

    def join(self, seconds: float) -> None:
        self.joined.append(seconds)


LOST = paramiko.SSHException("Channel closed.")
"""What paramiko raises for a channel whose connection has ended."""
