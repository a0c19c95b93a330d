"""Keeps the connections to workers while a command needs them, opened side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TypeVar

from tpuctl.cloud.ssh.session import SshSession
from tpuctl.errors import HostError
from tpuctl.parallel import Result, fanout

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
        self._sessions: dict[int, SshSession] = {}
        self._closers = ExitStack()
        self._is_closed = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
        self._closers.close()

    def run_all(
        self, work: Callable[[SshSession, int], Out], workers: Iterable[int]
    ) -> list[Result[int, Out]]:
        """Call `work` with the connection to every worker, and return one result a worker, in their order.

        The error of one is its result, and changes nothing for the others.
        """
        return fanout(lambda worker: work(self.session(worker), worker), workers, WIDTH)

    def session(self, worker: int) -> SshSession:
        """Return the connection to a worker; one that was lost is opened again. Raises HostError.

        A worker is for one thread at a time.
        """
        kept = self._sessions.get(worker)
        if kept is not None and kept.is_open:
            return kept
        connection = self._connect(worker)
        session = connection.__enter__()
        with self._lock:
            if not self._is_closed:
                self._closers.push(connection)
                self._sessions[worker] = session
                return session
        connection.__exit__(None, None, None)
        raise HostError(f"worker {worker}: the command ended before it was reached.")
