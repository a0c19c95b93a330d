"""An event loop in a thread of its own, so that blocking clients can run in a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for one coroutine, on a machine that is busy."""


class LoopThread:
    """Runs coroutines; a daemon, so that what a failed test leaves open does not hang the run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return self.submit(work).result(PATIENCE)

    def start(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine that starts a server; the loop ends when it fails."""
        try:
            return self.run(work)
        except BaseException:
            self.close()
            raise

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine that ends a server, and end the loop, also when it fails."""
        try:
            self.run(work)
        finally:
            self.close()

    def close(self) -> None:
        """End the loop and its threads."""
        try:
            self.run(self.loop.shutdown_default_executor())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
