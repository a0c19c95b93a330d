"""Guards a folder that is filled from a bucket: it holds one thing, and one command at a time writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.flows.progress import Report
from tpuctl.local.staged_folder import STAGING, StagedFolder

_HINT = "Name another folder with --to."


def check_folder(folder: Path, content: str, holds: Callable[[], bool]) -> None:
    """Raise UsageError unless the folder is new, empty, or `holds` the content, or a part of it.

    `content` is what the error says: `run 'r1'`. Files of a download that was killed at its first one do not
    count.
    """
    try:
        names = {path.name for path in folder.iterdir()} - {STAGING} if folder.is_dir() else set()
        if not names or holds():
            return
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}.", hint=_HINT) from error
    raise UsageError(f"{folder} has files that are not of {content}.", hint=_HINT)


@contextmanager
def filling(folder: Path, report: Report, check: Callable[[], None]) -> Iterator[StagedFolder]:
    """Yield the folder to fill, once no other command writes to it; raises UsageError for an OSError.

    `check` looks at the folder then: while another command fills it, its content is not certain.
    """
    waiting = f"waiting for another command that writes to {folder}"
    try:
        with StagedFolder(folder, lambda: report(waiting)) as local:
            check()
            yield local
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}.", hint=_HINT) from error
