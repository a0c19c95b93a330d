"""Shows the bytes of a copy, their rate, and how many workers have all of theirs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tpuctl.cli.output import format_bytes, note
from tpuctl.cli.printing import unguarded

INTERVAL = 10.0
REDRAW_INTERVAL = 0.1


@contextmanager
def show_bytes(workers: Sequence[int]) -> Iterator[Callable[[int, int, int], None]]:
    """Yield a function that takes a worker, its bytes, and all of them."""
    if not sys.stderr.isatty():
        yield _Sum(workers, note, INTERVAL).report
        return
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.text import Text  # noqa: PLC0415

    with Console(file=unguarded(sys.stderr), highlight=False).status("copying ...") as live:
        yield _Sum(workers, lambda text: live.update(Text(text)), REDRAW_INTERVAL).report


class _Sum:
    """Adds up the bytes of all workers."""

    def __init__(self, workers: Sequence[int], show: Callable[[str], None], interval: float) -> None:
        self._show = show
        self._interval = interval
        self._lock = threading.Lock()
        self._workers = dict.fromkeys(workers, (0, 0))
        self._began = self._last = time.monotonic()

    def report(self, worker: int, size: int, total: int) -> None:
        """Take the bytes of one worker, from its thread."""
        with self._lock:
            self._workers[worker] = size, total
            now = time.monotonic()
            if now - self._last >= self._interval:
                self._last = now
                self._show(self._text(now - self._began))

    def _text(self, seconds: float) -> str:
        size = sum(count for count, _ in self._workers.values())
        total = sum(count for _, count in self._workers.values())
        complete = sum(count == most > 0 for count, most in self._workers.values())
        of_total = f" of {format_bytes(total)}" if total >= size else ""
        workers = f", {complete} of {len(self._workers)} workers complete" if len(self._workers) > 1 else ""
        return f"{format_bytes(size)}{of_total} at {format_bytes(size / seconds)}/s{workers}"
