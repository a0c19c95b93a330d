"""Hears the signals that stop a host; they end what the main thread waits for before the script runs."""

from __future__ import annotations

import signal
import threading
import time
from typing import Optional


class Stopped(BaseException):
    """The host or the run was stopped, or another worker ended, before the script started.

    Raised by a signal at any moment: nothing that handles errors on the way may take it for one.
    """


class Signals:
    """What this process was told by signals."""

    def __init__(self) -> None:
        self.number = 0
        """The signal that stops this process; 0 for none."""
        self.since = 0.0
        """When the first of them came, by the monotonic clock."""
        self.can_interrupt = False
        """Whether a signal raises Stopped in the main thread, once."""

    @property
    def name(self) -> str:
        """The signal's name; empty for none."""
        return signal.Signals(self.number).name if self.number else ""

    def hear(self) -> None:
        """Begin to hear them."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR1, lambda number, frame: self._interrupt())

    def _on_signal(self, number: int, _frame: Optional[object]) -> None:
        self.since = self.since or time.monotonic()
        self.number = number
        self._interrupt()

    def _interrupt(self) -> None:
        if self.can_interrupt:
            self.can_interrupt = False
            raise Stopped


def wake() -> None:
    """Interrupt the main thread: it may wait for a package, or for other workers."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
