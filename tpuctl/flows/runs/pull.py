"""Copies a run to this machine: committed checkpoints, logs and records, each file verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.errors import StateError, UsageError
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.checkpoints import is_state_file, split_committed
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.object_content import Content
from tpuctl.parallel import fanout, values
from tpuctl.runs import Run, decode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object

WIDTH = 8
"""Files fetched at once."""
RECORD = "run.json"


@dataclass(frozen=True)
class PullResult:
    """The copy of a run."""

    folder: Path
    files: int
    size: int
    """Bytes of all files."""
    unchanged: int
    """Files that an earlier pull had fetched, with the right checksum."""
    uncommitted: tuple[str, ...]
    """Objects of unfinished checkpoints: not fetched."""


def pull(run: StoredRun, folder: Path, report: Report) -> PullResult:
    """Fetch a run into `folder`, without unfinished checkpoints; files that are unchanged are skipped.

    Raises NotFoundError for an unknown run, UsageError for a folder that holds something else or cannot be
    written, StateError for a file that arrives damaged.
    """
    objects = run.bucket.objects(run.paths.folder)
    if not objects:
        raise run.not_found()
    _check_folder(folder, run.name)
    files, uncommitted = split_committed(run.bucket, objects)
    report(f"fetching {len(files)} files")
    try:
        fetched = _fetch_all(run, files, folder)
        _join_logs(folder)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror or error}.", hint="Name another folder with --to."
        ) from error
    return PullResult(
        folder, len(files), sum(file.size for file in files), fetched.count(False), tuple(uncommitted)
    )


def _check_folder(folder: Path, run: str) -> None:
    """Raise UsageError unless the folder is new, empty, or holds an earlier pull of this run."""
    try:
        if folder.is_dir() and not _is_empty(folder) and not _holds(folder, run):
            raise UsageError(
                f"{folder} has files that are not of run '{run}'.", hint="Name another folder with --to."
            )
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read: {error.strerror}.", hint="Name another folder."
        ) from error


def _is_empty(folder: Path) -> bool:
    """Whether a folder has no files, or only the first one of a pull that was killed."""
    return all(path.name == f"{RECORD}.part" for path in folder.iterdir())


def _holds(folder: Path, run: str) -> bool:
    record = folder / RECORD
    return record.is_file() and decode(record.read_bytes(), Run, str(record)).run == run


def _fetch_all(run: StoredRun, files: Sequence[Object], folder: Path) -> list[bool]:
    """Fetch objects into the folder and return which of them it lacked.

    First the record, by which the next pull recognizes the folder; last what names checkpoints, once the
    folder has them.
    """

    def stage(file: Object) -> int:
        return 0 if file.name == run.paths.record else 2 if is_state_file(file) else 1

    fetched: list[bool] = []
    for number in range(3):
        batch = [file for file in files if stage(file) == number]
        fetched += values(fanout(lambda file: _fetch(run, file, folder), batch, width=WIDTH))
    return fetched


def _fetch(run: StoredRun, file: Object, folder: Path) -> bool:
    """Fetch one object into the folder; return False when the folder has it already."""
    path = folder / file.name.removeprefix(run.paths.folder)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise StateError(
            f"{file.name} would be written outside {folder}.",
            hint="Delete that object: tpuctl did not write it.",
        )
    if path.is_file() and path.stat().st_size == file.size and Content.of_file(path) == file.content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    run.bucket.download(file, path)
    if Content.of_file(path) != file.content:
        path.unlink()
        raise StateError(f"{file.name} arrived damaged.", hint="Run 'tpuctl pull' again.")
    return True


def _join_logs(folder: Path) -> None:
    """Join each worker's log chunks into logs/attempt-K-worker-I.log, for people."""
    for chunks in sorted(folder.glob("attempts/*/workers/*/log")):
        attempt, worker = chunks.parts[-4], chunks.parts[-2]
        target = folder / "logs" / f"attempt-{attempt}-worker-{worker}.log"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"".join(chunk.read_bytes() for chunk in sorted(chunks.glob("*.log"))))
