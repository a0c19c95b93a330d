"""A command on a worker that is played here: its output, what ends it, and what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tpuctl.errors import HostError


class PlayedProcess:
    """A command that writes its output, then ends by itself or by what comes on stdin."""

    def __init__(
        self,
        out: Sequence[bytes] = (),
        err: Sequence[bytes] = (),
        code: int | HostError = 0,
        ends_on: str | None = "",
    ) -> None:
        """`ends_on` is the signal that ends it; empty for none needed, None for one that nothing ends."""
        self._out, self._err, self._code = list(out), list(err), code
        self._ends_on = ends_on
        self._ended = threading.Event()
        self.got: list[str] = []
        """The lines on stdin."""
        self.is_input_ended = self.is_closed = False
        self.argv: Sequence[str] = ()

    def read(self) -> bytes:
        if self._out:
            return self._out.pop(0)
        if self._ends_on != "":
            self._ended.wait()
        return b""

    def read_errors(self) -> bytes:
        return self._err.pop(0) if self._err else b""

    def write(self, data: bytes) -> None:
        self.got.append(data.decode())
        if self.got[-1] == f"{self._ends_on}\n":
            self._ended.set()

    def end_input(self) -> None:
        self.is_input_ended = True
        self._ended.set()

    def exit_code(self) -> int:
        if isinstance(self._code, HostError):
            raise self._code
        return self._code

    def close(self) -> None:
        self.is_closed = True
        self._ended.set()


class PlayedSession:
    """A connection that starts one played command; `meanwhile` is called within."""

    def __init__(self, process: PlayedProcess, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._process = process
        self._meanwhile = meanwhile
        self.is_started = False

    def start(self, argv: Sequence[str]) -> PlayedProcess:
        self.is_started = True
        self._process.argv = argv
        self._meanwhile()
        return self._process


@contextmanager
def session_of(process: PlayedProcess) -> Iterator[PlayedSession]:
    """Open the connection to a played command."""
    yield PlayedSession(process)
