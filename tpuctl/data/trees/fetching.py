"""Fetches what will be asked for next by several requests at once, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tpuctl.data.trees.tree import ListedFile

AHEAD, AHEAD_BYTES = 8, 16 << 20
"""Files that each reader has fetched ahead, and about how many bytes."""
PART = 4 << 20
"""Bytes of a large file that one request fetches."""
_PARTS_AHEAD = 4


def in_turn(
    pool: ThreadPoolExecutor,
    fetch: Callable[[ListedFile], bytes],
    files: Sequence[ListedFile],
    size: Callable[[ListedFile], int],
) -> Iterator[bytes | OSError]:
    """Yield what `fetch` returns for each file in turn, or its OSError; `size` is how much it will hold."""
    waiting: deque[tuple[int, Future[bytes]]] = deque()
    held = 0
    try:
        for file in files:
            expected = size(file)
            while waiting and (len(waiting) >= AHEAD or held + expected > AHEAD_BYTES):
                released, future = waiting.popleft()
                yield _result(future)
                held -= released
            waiting.append((expected, pool.submit(fetch, file)))
            held += expected
        while waiting:
            yield _result(waiting.popleft()[1])
    finally:
        for _, future in waiting:
            future.cancel()


def _result(future: Future[bytes]) -> bytes | OSError:
    try:
        return future.result()
    except OSError as error:
        return error


class ReadAhead:
    """A file that is read from one place on: the parts that follow are fetched meanwhile."""

    def __init__(self, pool: ThreadPoolExecutor, fetch: Callable[[int, int], bytes], size: int) -> None:
        """`fetch` returns the bytes from a place to before another."""
        self._pool = pool
        self._fetch = fetch
        self._size = size
        self._parts: dict[int, Future[bytes]] = {}

    def read(self, at: int, size: int) -> bytes:
        """Return bytes from a place on, at most to the end of their part."""
        number, offset = divmod(at, PART)
        following = range(number, min(number + _PARTS_AHEAD, -(-self._size // PART)))
        for passed in self._parts.keys() - set(following):
            self._parts.pop(passed).cancel()
        for part in following:
            if part not in self._parts:
                end = min((part + 1) * PART, self._size)
                self._parts[part] = self._pool.submit(self._fetch, part * PART, end)
        return self._parts[number].result()[offset : offset + size] if number in self._parts else b""

    def close(self) -> None:
        """Fetch nothing more."""
        for part in self._parts.values():
            part.cancel()
        self._parts.clear()
