"""How results look: tables and JSON on stdout, progress and hints on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tpuctl.bucket_layout import dataset as folder
from tpuctl.bucket_layout import gs
from tpuctl.nodes import HttpRequest

if TYPE_CHECKING:
    from tpuctl.data.output.manifest import Manifest
    from tpuctl.flows.datasets.conversion import Done

SCHEMA = 1
_REDRAW = 0.1
"""Seconds between two looks of a progress bar: there are thousands of pieces a second."""
INTERVAL = 10.0
"""Seconds between progress lines where there is no terminal."""


def json(content: Mapping[str, Any]) -> None:
    """Print a JSON object with its schema version."""
    encoded = msgspec.json.encode({"schema": SCHEMA, **content}, enc_hook=str)
    print(msgspec.json.format(encoded, indent=2).decode())


def json_line(content: Mapping[str, Any]) -> str:
    """Return one line of JSON with its schema version, for a stream of them."""
    return msgspec.json.encode({"schema": SCHEMA, **content}).decode()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, err: bool = False) -> None:
    """Print rows under the names of their columns, each column as wide as it needs."""
    lines = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(padded.rstrip(), file=sys.stderr if err else sys.stdout)


def facts(content: Mapping[str, object], *, err: bool = False) -> None:
    """Print names and values, one a line."""
    width = max(len(name) for name in content)
    for name, value in content.items():
        print(f"{name:<{width}}  {value}", file=sys.stderr if err else sys.stdout)


def note(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr)


def hint(command: str) -> None:
    """Print the next useful command on stderr."""
    print(f"Next: {command}", file=sys.stderr)


def requests(planned: Iterable[HttpRequest], *, as_json: bool) -> None:
    """Print the requests that --dry-run holds back."""
    listed = list(planned)
    if as_json:
        json({"requests": [{"method": one.method, "url": one.url, "body": one.body} for one in listed]})
        return
    for one in listed:
        print(f"{one.method} {one.url}")
        if one.body is not None:
            print(msgspec.json.format(msgspec.json.encode(one.body), indent=2).decode())


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is going on: a live line on a terminal, a line each elsewhere."""
    if not sys.stderr.isatty():
        yield note
        return
    from rich.console import Console  # noqa: PLC0415  only on a terminal

    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    with console.status("...") as live:

        def tell(text: str) -> None:
            console.print(f"[dim]{time.monotonic() - began:5.1f}s[/dim] {text}")
            live.update(text)

        yield tell


@contextmanager
def counting(noun: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many of how many are done."""
    if sys.stderr.isatty():
        with _bar(noun) as count:
            yield count
        return
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            note(f"{done} of {total} {noun}")

    yield tell


@contextmanager
def _bar(noun: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn(noun), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(noun, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def converting(total: int) -> Iterator[Callable[[Done], None]]:
    """Yield a function that shows records, megabytes a second, and the time left."""
    began = time.monotonic()
    if sys.stderr.isatty():
        with _conversion_bar(total) as tell:
            yield tell
        return
    last = began

    def tell_line(done: Done) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= INTERVAL:
            last = now
            note(_speed(done, now - began))

    yield tell_line


def _speed(done: Done, seconds: float) -> str:
    left = f", {seconds / done.records * (done.total - done.records):.0f}s left" if done.records else ""
    rate = bytes_text(done.bytes / seconds)
    return f"{done.records} of {done.total} records, {bytes_text(done.bytes)} at {rate}/s{left}"


@contextmanager
def _conversion_bar(total: int) -> Iterator[Callable[[Done], None]]:
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("records"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("records", total=total, rate="")

        shown = began

        def tell(done: Done) -> None:
            nonlocal shown
            if (now := time.monotonic()) - shown < _REDRAW and done.records < done.total:
                return
            shown = now
            rate = f"{done.bytes / 1e6 / (time.monotonic() - began):.1f} MB/s"
            progress.update(task, completed=done.records, rate=rate)

        yield tell


def dataset(manifest: Manifest, bucket: str) -> dict[str, object]:
    """Return what JSON says of a dataset."""
    return {
        "name": manifest.name,
        "version": manifest.version,
        "uri": gs(bucket, folder(manifest.name, manifest.version)),
        "records": manifest.records,
        "bytes": manifest.bytes,
        "shards": len(manifest.shards),
        "splits": {name: split.records for name, split in manifest.splits.items()},
        "classes": list(manifest.classes),
        "skipped": manifest.source.skipped,
        "digest": manifest.digest,
    }


def bytes_text(size: float) -> str:
    """Return a size as people read it: `1.2 MB` (powers of ten)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
