"""Shows progress on stderr: a live line or bar on a terminal, else one line per interval."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tpuctl import printable
from tpuctl.cli.output import format_bytes, note
from tpuctl.cli.printing import unguarded
from tpuctl.errors import InterruptedByUser

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from tpuctl.flows.datasets.conversion import ConversionProgress

INTERVAL = 10.0
"""Seconds between progress lines where there is no terminal."""
REDRAW_INTERVAL = 0.1
"""Seconds between updates of a bar: there are thousands of reports a second."""


@contextmanager
def show_steps() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step: a live line on a terminal, a line each elsewhere."""
    if not sys.stderr.isatty():
        yield note
        return
    from rich.console import Console  # only on a terminal
    from rich.text import Text

    console = Console(file=unguarded(sys.stderr), highlight=False)
    began = time.monotonic()
    with console.status("...") as live:

        def report(step: str) -> None:
            seconds = Text(f"{time.monotonic() - began:5.1f}s ", "dim")
            console.print(seconds.append(printable.line(step), "not dim"))
            live.update(Text(printable.line(step)))  # no markup: a step names what others have named

        yield report


@contextmanager
def show_transfer() -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Yield a function that shows the current step, and one that shows the bytes that are here of all."""
    due = _Interval(REDRAW_INTERVAL if sys.stderr.isatty() else INTERVAL)

    def amount(here: int, size: int) -> str:
        return f"{format_bytes(here)} of {format_bytes(size)}"

    if not sys.stderr.isatty():
        yield note, lambda here, size: note(amount(here, size)) if due() else None
        return
    from rich.console import Console  # only on a terminal
    from rich.text import Text

    console = Console(file=unguarded(sys.stderr), highlight=False)
    with console.status("...") as live:

        def report(step: str) -> None:
            console.print(Text(printable.line(step)))
            live.update(Text(printable.line(step)))

        yield report, lambda here, size: live.update(Text(amount(here, size))) if due() else None


@contextmanager
def resumable(problem: str, kept: str) -> Iterator[None]:
    """Say after Ctrl-C what the problem is, and that the same command goes on with what is `kept`."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedByUser(problem, hint=f"Run the same command again: {kept}.") from None


@contextmanager
def show_count(noun: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows a count and its total, such as `12 of 40 files checked`."""
    if sys.stderr.isatty():
        from rich.progress import TextColumn, TimeRemainingColumn

        with _bar(TextColumn(noun), (TimeRemainingColumn(),)) as bar:
            task = bar.add_task(noun, total=None)
            yield lambda count, total: bar.update(task, completed=count, total=total)
        return
    due = _Interval(INTERVAL)

    def report(count: int, total: int) -> None:
        if due():
            note(f"{count} of {total} {noun}")

    yield report


@contextmanager
def show_late_count() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows a count of some noun from its first call on, and nothing without one."""
    with ExitStack() as stack:
        counts: dict[str, Callable[[int, int], None]] = {}

        def report(noun: str, count: int, total: int) -> None:
            if noun not in counts:
                stack.close()
                counts[noun] = stack.enter_context(show_count(noun))
            counts[noun](count, total)

        yield report


@contextmanager
def show_conversion(total: int) -> Iterator[Callable[[ConversionProgress], None]]:
    """Yield a function that shows records, megabytes a second, and the time left."""
    if sys.stderr.isatty():
        with _conversion_bar(total) as report_to_bar:
            yield report_to_bar
        return
    began = time.monotonic()
    due = _Interval(INTERVAL)

    def report(state: ConversionProgress) -> None:
        if due():
            note(_speed(state, time.monotonic() - began))

    yield report


@contextmanager
def _conversion_bar(total: int) -> Iterator[Callable[[ConversionProgress], None]]:
    from rich.progress import TextColumn, TimeRemainingColumn

    began = time.monotonic()
    due = _Interval(REDRAW_INTERVAL)
    columns = (TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("left"))
    with _bar(TextColumn("records"), columns) as bar:
        task = bar.add_task("records", total=total, rate="")

        def report(state: ConversionProgress) -> None:
            if due() or state.records >= state.total:
                rate = f"{state.bytes / 1e6 / (time.monotonic() - began):.1f} MB/s"
                bar.update(task, completed=state.records, rate=rate)

        yield report


@contextmanager
def _bar(label: ProgressColumn, columns: tuple[ProgressColumn, ...]) -> Iterator[Progress]:
    """A bar with its count, between a label and more columns; it disappears at the end."""
    from rich.console import Console  # only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    console = Console(file=unguarded(sys.stderr))
    with Progress(label, BarColumn(), MofNCompleteColumn(), *columns, console=console, transient=True) as bar:
        yield bar


class _Interval:
    """Returns True when called at least `seconds` after it last did, or after it was made."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def _speed(state: ConversionProgress, seconds: float) -> str:
    remaining = state.total - state.records
    time_left = f", {seconds / state.records * remaining:.0f}s left" if state.records else ""
    rate = format_bytes(state.bytes / seconds)
    return f"{state.records} of {state.total} records, {format_bytes(state.bytes)} at {rate}/s{time_left}"
