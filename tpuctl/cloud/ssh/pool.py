"""Keeps the connections to workers while a command needs them, opened side by side.

Of very many workers none is kept: a process may open 256 files on macOS.
"""

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
        self._kept: dict[int, tuple[SshSession, AbstractContextManager[SshSession]]] = {}
        self._is_closed = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
