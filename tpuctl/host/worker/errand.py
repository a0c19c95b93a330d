"""Does some work each time that it is due, in a thread of its own."""

from __future__ import annotations

import threading
from typing import Callable

from tpuctl.host import timing


class Errand(threading.Thread):
    """Does some work each time that it is due: neither the script nor other work waits for it."""

    def __init__(self, is_due: Callable[[], bool], work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._is_due = is_due
        self._work = work
        self._is_over = threading.Event()

    def run(self) -> None:
        """Look each POLL_INTERVAL whether it is due."""
        while not self._is_over.wait(timing.POLL_INTERVAL):
            if self._is_due():
                self._work()

    def end(self) -> None:
        """Return once nothing of it is under way any more."""
        self._is_over.set()
        if self.is_alive():
            self.join()
