"""The command cp."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from tpuctl.cli import output
from tpuctl.cli.output import format_bytes, note
from tpuctl.cli.printing import unguarded
from tpuctl.cli.remote.exec import find, reach
from tpuctl.cli.session import Session, dry_run_option, reaching_options, with_session
from tpuctl.client.nodes import node as calls
from tpuctl.errors import StateError, TpuctlError, UsageError
from tpuctl.flows.remote.copy import CopyResult, parse_copy
from tpuctl.flows.remote.targets import ALL_WORKERS, chosen_workers
from tpuctl.parallel import Result

INTERVAL = 10.0
REDRAW_INTERVAL = 0.1
Results = Sequence[Result[int, CopyResult]]
MOST_NAMED = 10
"""Files that are left out, of each worker, that a warning names."""


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="SRC... DST")
@click.option("--worker", metavar="WORKERS", help="Workers: all, 0, 1,3 or 0-7. [default: all]")
@click.option("--recursive", "-r", is_flag=True, hidden=True, help="Folders are always copied whole.")
@dry_run_option
@with_session
@reaching_options
def cp(session: Session, paths: tuple[str, ...], worker: str | None, recursive: bool, dry_run: bool) -> None:
    """Copy files and folders to every host of a TPU, or from every host into a folder each.

    NAME:PATH is a path on all workers of a TPU, NAME@3:PATH on worker 3, :PATH on those of your only TPU. It
    begins in the home folder there. SRC may have wildcards, also on hosts (quoted). From several workers, the
    files of worker 3 are in DST/worker-3. A file appears when it is complete. The same command again sends no
    file that is there with the same size, time and mode.

    \b
    Example:
      tpuctl cp data train.py n1:
      tpuctl cp 'n1@0:outputs/*.png' .
    """
    del recursive  # accepted, as by scp
    if len(paths) < 2:
        raise UsageError("There is no destination.", hint="tpuctl cp FILE NAME:\ntpuctl cp NAME:FILE .")
    request = parse_copy(paths[:-1], paths[-1])
    hosts = find(session, request.host, chosen_workers(request.host, worker, ALL_WORKERS))
    if dry_run:
        output.requests(calls.admissions(session, hosts), as_json=session.as_json)
        return
    hosts = reach(session, hosts)
    with show_bytes(hosts.workers) as report:
        results = calls.copy(session, hosts, request, report)
    _show(session, hosts.node.name, results)


def _show(session: Session, node: str, results: Results) -> None:
    content = {"node": node, "workers": [_worker(result) for result in results]}
    error = _error(session, results)
    if error:
        error.result = content
        raise error
    if session.as_json:
        output.json(content)
        return
    copied = [result.value for result in results if result.value]
    kept = sum(item.kept for item in copied)
    unchanged = f", {kept} of them unchanged" if kept else ""
    size = output.format_bytes(sum(item.bytes for item in copied))
    workers = f" on {len(results)} workers" if len(results) > 1 else ""
    output.note(f"{sum(item.files for item in copied)} files ({size}){workers}{unchanged}.")


def _worker(result: Result[int, CopyResult]) -> dict[str, object]:
    content: dict[str, object] = {"worker": result.item}
    if result.error:
        return {**content, "error": result.error.message}
    assert result.value
    left_out = [{"path": path, "reason": reason} for path, reason in result.value.left_out]
    return {
        **content,
        "files": result.value.files,
        "bytes": result.value.bytes,
        "kept": result.value.kept,
        "left_out": left_out,
    }


def _error(session: Session, results: Results) -> TpuctlError | None:
    """Return the error of the first worker that failed, or of files that were left out."""
    errors = [result.error for result in results if result.error]
    if errors:
        if len(errors) > 1:
            failed = ", ".join(str(result.item) for result in results if result.error)
            errors[0].hint = f"{len(errors)} of {len(results)} workers failed: {failed}. {errors[0].hint}"
        return errors[0]
    left_out = {pair for result in results if result.value for pair in result.value.left_out}
    for path, reason in sorted(left_out)[:MOST_NAMED]:
        session.warn(f"{path}: {reason}; it is left out.")
    if not left_out:
        return None
    count = "1 file was" if len(left_out) == 1 else f"{len(left_out)} files were"
    return StateError(f"{count} left out; everything else is there.", hint="--json names all of them.")


# Shows the bytes of a copy, their rate, and how many workers have all of theirs.


@contextmanager
def show_bytes(workers: Sequence[int]) -> Iterator[Callable[[int, int, int], None]]:
    """Yield a function that takes a worker, its bytes, and all of them."""
    if not sys.stderr.isatty():
        yield _Sum(workers, note, INTERVAL).report
        return
    from rich.console import Console  # only on a terminal
    from rich.text import Text

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
