"""Runs one call of the API: passes its progress on, and lets other threads stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from tpuctl import polling
from tpuctl.client.records import Progress, ProgressCallback
from tpuctl.errors import InterruptedByUser, TpuctlError, add_note

Item = TypeVar("Item")
STOPPED = "The call was stopped."


class Stop:
    """Stops calls from another thread: pass it as `stop=`, and call `set()` there.

    Each call that has it raises `tpuctl.errors.InterruptedByUser` then, at its next pause or report of
    progress: a request that is under way is answered first. A run that was submitted goes on. A call that
    gets a `Stop` which is set already raises at once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt who has it
        self._is_set = False
        self._events: set[threading.Event] = set()

    def set(self) -> None:
        """Stop every call that has it, and each later one."""
        with self._lock:
            self._is_set = True
            for event in self._events:
                event.set()

    def is_set(self) -> bool:
        """Return whether `set` was called."""
        return self._is_set

    @contextmanager
    def _stopping(self, event: threading.Event) -> Iterator[None]:
        """Set an event as soon as this is set, during the block."""
        with self._lock:
            self._events.add(event)
            if self._is_set:
                event.set()
        try:
            yield
        finally:
            with self._lock:
                self._events.discard(event)


class Call:
    """One call under way."""

    def __init__(self, progress: ProgressCallback | None = None, *stops: Stop | None) -> None:
        self._progress = progress
        self._stops = [stop for stop in stops if stop]
        self._event = threading.Event()
        self._lock = threading.RLock()
        self._failure: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[Call]:
        """Make the work of the block this call's.

        An exception of the progress callback ends the work as a stop does, and is raised here, with a note of
        what the work says of its end: what may bill.
        """
        with ExitStack() as stack:
            for stop in self._stops:
                stack.enter_context(stop._stopping(self._event))
            stack.enter_context(polling.stopped_by(self._event))
            try:
                polling.check()
                yield self
            except polling.Stopped:
                pass
            except TpuctlError as error:
                if self._failure is None:
                    raise
                add_note(self._failure, f"{error.message} {error.hint}".strip())
            else:
                return
        raise self._failure or InterruptedByUser(STOPPED)

    def each(self, items: Generator[Item, None, object]) -> Iterator[Item]:
        """Yield the items of work that goes on only while one is asked for."""
        try:
            while True:
                with self.running():
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                yield item
        finally:
            items.close()

    def report(self, progress: Progress) -> None:
        """Pass a report on, from any thread; raises Stopped if the call is to stop."""
        with self._lock:
            if self._progress and not self._failure:
                try:
                    self._progress(progress)
                except BaseException as error:
                    self._failure = error
                    self._event.set()
        polling.check(self._event)

    def line(self, text: str) -> None:
        """Report a step."""
        self.report(Progress(text))

    def count(self, unit: str, words: str = "") -> Callable[[int, int], None]:
        """Return what reports an amount and its total, 0 where that is not known."""

        def report(done: int, total: int) -> None:
            of = f" of {total}" if total else ""
            self.report(Progress(f"{done}{of} {words or unit}", done, total or None, unit))

        return report
