"""Runs the same work on many workers, with one result per worker and not only the first exception."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from threading import Event, Thread
from typing import Generic, TypeVar

from tpuctl import polling
from tpuctl.errors import DeadlineError, TpuctlError

Item = TypeVar("Item")
Out = TypeVar("Out")

WIDTH = 32
MOST = 128
"""Threads of calls inside calls: each may hold a connection."""
OPEN_FILES = 16_384
"""Enough for connections to all hosts of a large slice, and for a simulator of them: ten each of 256."""

_together: ContextVar[int] = ContextVar("_together", default=1)
"""In how many threads the work is done of which this is a part."""


@dataclass(frozen=True)
class Result(Generic[Item, Out]):
    """The outcome of one item: a value or an error."""

    item: Item
    value: Out | None = None
    error: TpuctlError | None = None


def fanout(work: Callable[[Item], Out], items: Iterable[Item], width: int = WIDTH) -> list[Result[Item, Out]]:
    """Call `work` on every item, at most `width` at once, and return the results in the items' order.

    Work that calls this in its turn shares MOST threads with its siblings.
    Only TpuctlErrors become results: anything else is a bug and is raised. Work that another thread stops
    has ended on every item when Stopped is raised.
    """

    def outcome(item: Item) -> Result[Item, Out]:
        try:
            return Result(item, value=work(item))
        except TpuctlError as error:
            return Result(item, error=error)

    listed = list(items)
    width = min(width, len(listed), max(1, MOST // _together.get()))
    if width <= 1:
        return [outcome(item) for item in listed]
    contexts = [copy_context() for _ in listed]
    for context in contexts:
        context.run(_together.set, _together.get() * width)
    pool = ThreadPoolExecutor(width, thread_name_prefix="fanout")
    is_stopped = False
    try:
        return list(
            pool.map(
                lambda item, context: context.run(polling.in_thread, lambda: outcome(item)), listed, contexts
            )
        )
    except polling.Stopped:
        is_stopped = True
        polling.was_heard()
        raise
    finally:
        pool.shutdown(wait=is_stopped, cancel_futures=True)  # after Ctrl-C, do not wait for work that hangs


def allow_open_files() -> None:
    """Raise this process's own soft limit, which is 256 on macOS and 1,024 on Linux; the hard one stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(ValueError, OSError):  # of a system that allows fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


PATIENCE = 5.0
"""Seconds for a look that a command can do without."""


def within(work: Callable[[], Out], seconds: float | None = None) -> Result[float, Out]:
    """Return what `work` returns, or an error where it has not ended by then, or has failed in whatever way.

    For what a command can do without. Work that hangs is told to stop, and left to itself.
    """
    limit = PATIENCE if seconds is None else seconds
    late = DeadlineError(f"No answer within {limit:.0f} s.")
    outcomes = [Result[float, Out](limit, error=late)]
    stop = Event()

    def attempt() -> None:
        try:
            with polling.stopped_by(stop):
                outcomes.append(Result(limit, value=work()))
        except TpuctlError as error:
            outcomes.append(Result(limit, error=error))
        except (Exception, polling.Stopped) as error:  # whatever it is, the command goes on
            outcomes.append(Result(limit, error=TpuctlError(str(error))))

    thread = Thread(target=copy_context().run, args=(attempt,), name="within", daemon=True)
    thread.start()
    thread.join(limit)
    stop.set()
    return outcomes[-1]


def values(results: Iterable[Result[Item, Out]], of: str = "") -> list[Out]:
    """Return every value; raises the first error, whose hint says how many failed when several did.

    `of` completes "2 of 2 failed": what they are.
    """
    listed = list(results)
    errors = [result.error for result in listed if result.error]
    if errors:
        first = errors[0]
        if len(errors) > 1 and "failed" not in first.facts:
            first.facts.update(failed=len(errors), of=len(listed))
            first.hint = f"{len(errors)} of {len(listed)} {of} failed. {first.hint}".replace(
                "  ", " "
            ).strip()
        raise first
    return [result.value for result in listed]  # type: ignore[misc]  # without an error there is a value
