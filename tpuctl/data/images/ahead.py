"""Converts images on all cores, ahead of the thread that writes them and in its order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

_CORES = os.cpu_count() or 1
_WAITING = 2 * _CORES
"""Images converted ahead of each writer: while a large one is converted, the cores have others."""
_MOST_BYTES = 1 << 25
"""Bytes of what waits for the item in front of it, besides one."""

P = TypeVar("P")
R = TypeVar("R")


class Ahead:
    """Threads that begin with the first image to be converted; Pillow works without Python's lock."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    def map(
        self,
        work: Callable[[int, P], R],
        items: Iterable[tuple[int, P, bool]],
        weigh: Callable[[P], int] = lambda content: len(content) if isinstance(content, bytes) else 0,
    ) -> Iterator[tuple[int, R]]:
        """Yield each item's number and the result of `work` on it, in order.

        `items` are number, content, and whether the work takes long; what does not is done at once. `weigh`
        returns the bytes of a content.
        """
        waiting: deque[tuple[int, int, R | Future[R]]] = deque()
        size = 0
        try:
            for number, content, slow in items:
                if not slow and not waiting:
                    yield number, work(number, content)
                    continue
                result = self._threads().submit(work, number, content) if slow else work(number, content)
                waiting.append((number, weigh(content), result))
                size += waiting[-1][1]
                while waiting and (len(waiting) > _WAITING or size > _MOST_BYTES):
                    size -= waiting[0][1]
                    yield _first(waiting)
            while waiting:
                yield _first(waiting)
        finally:
            for _, _, result in waiting:
                if isinstance(result, Future):
                    result.cancel()

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            # twice the cores: some wait until a large image leaves them room
            self._pool = self._pool or ThreadPoolExecutor(2 * _CORES, thread_name_prefix="image")
            return self._pool


def _first(waiting: deque[tuple[int, int, R | Future[R]]]) -> tuple[int, R]:
    number, _, result = waiting.popleft()
    return number, result.result() if isinstance(result, Future) else result
