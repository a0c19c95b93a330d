"""Holds what every call works with: configuration and clients, each built at its first use.

- Runs one call of the API: passes its progress on, and lets other threads stop it.
- Reads spans of time as Python has them: seconds, or a timedelta.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from tpuctl import clock, durations, polling
from tpuctl.client.records import Progress, ProgressCallback
from tpuctl.cloud import endpoints
from tpuctl.config import Config
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    InterruptedByUser,
    StateError,
    TpuctlError,
    UsageError,
    add_note,
)

if TYPE_CHECKING:
    from tpuctl.flows.nodes.plan import Prices
    from tpuctl.flows.runs.evidence.witnesses import Witnesses


Warn = Callable[[str], None]
"""Takes a sentence that warns of something; called from any thread."""


def nothing() -> None:
    """Do nothing."""


class Context:
    """One client's configuration and connections; may be used by several threads at once."""

    def __init__(self, config: Config, warn: Warn, announce: Callable[[], None] = nothing) -> None:
        """Take `announce`, which is called before the first connection."""
        self.config = config
        self.warn = warn
        self._announce = announce
        self._lock = threading.Lock()
        self._cloud: endpoints.Cloud | None = None
        self._is_closed = False

    @property
    def cloud(self) -> endpoints.Cloud:
        """The clients of the target, whose simulator is started if that is needed.

        Raises StateError once this is closed.
        """
        with self._lock:
            if self._is_closed:
                raise StateError("This client is closed.", hint="Make another one.")
            if self._cloud is None:
                self._announce()
                self._cloud = endpoints.connect(self.config, self.warn)
            return self._cloud

    def now(self) -> datetime:
        """Return the time by which nodes are dated; where no server tells it, this machine's, and say so."""
        try:
            return self.cloud.server_time()
        except DeadlineError as error:
            self.warn(f"{error.message} Ages, ends and costs are by this machine's clock.")
            return clock.now()

    @cached_property
    def prices(self) -> Prices:
        """What TPUs cost: by the configuration, else by the provider's list, read when it is needed."""
        from tpuctl.flows.nodes.plan import Prices  # not every call needs a price

        return Prices(
            self.config.prices,
            lambda generation: self.cloud.read_rates(generation),
            lambda generation: self.cloud.kept_rates(generation),
        )

    @cached_property
    def witnesses(self) -> Witnesses:
        """Who can be asked about a run whose workers are silent."""
        from tpuctl.flows.runs.evidence.witnesses import Witnesses  # not every call asks

        return Witnesses(lambda: self.cloud.provider, lambda: self.cloud.ssh)

    @property
    def owner(self) -> str:
        """The account whose TPUs and runs are this user's own."""
        return self.config.require("owner")

    def require_chosen_project(self) -> None:
        """Raise ConfigError where only gcloud's own file names the project in which something is to bill."""
        if not self.config.is_project_chosen:
            raise self.unchosen_project(f"Name it: tpuctl.Client(project={self.config.require('project')!r})")

    def unchosen_project(self, hint: str) -> ConfigError:
        """Return the error of such a project."""
        project = self.config.require("project")
        return ConfigError(
            f"Only gcloud's configuration names project '{project}', and this may bill there.",
            hint=hint,
            project=project,
        )

    def from_flag(self, name: str) -> str | None:
        """Return a setting's value if it was passed to this client or command, else None."""
        return self.config.get(name) if self.config.values[name].origin == f"--{name}" else None

    def close(self) -> None:
        """Close the connections; every later use raises StateError."""
        with self._lock:
            self._is_closed, cloud, self._cloud = True, self._cloud, None
        if cloud:
            cloud.close()


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


Span = timedelta | float
"""A span of time: a timedelta, or seconds."""
HINT = "Give seconds, or a timedelta, such as timedelta(hours=2)."


def seconds(span: Span) -> float:
    """Return a span in seconds; raises UsageError for what is none."""
    try:
        length = span.total_seconds() if isinstance(span, timedelta) else float(span)
        if math.isnan(length):
            raise ValueError
        return length
    except (TypeError, ValueError) as error:
        raise UsageError(f"{span!r} is no span of time.", hint=HINT) from error


def length(span: Span) -> float:
    """Return a span of calendar time in seconds; raises UsageError for less than none, and for centuries."""
    value = seconds(span)
    if not 0 <= value <= durations.LONGEST:
        raise UsageError(f"{span!r} is not from 0 seconds to a century.", hint=HINT)
    return value
