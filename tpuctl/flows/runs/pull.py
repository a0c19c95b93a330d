"""Copies a run to this machine: committed checkpoints, logs and records, each file verified.

Names and contents are those of whoever can write to the bucket: each name is checked, and no link in the
folder is followed.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.errors import UsageError
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.checkpoints import is_state_file, split_committed
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.confined_folder import NotAFileError
from tpuctl.local.object_names import UnsafeNameError, local_parts
from tpuctl.local.places import Fold, Places
from tpuctl.local.staged_folder import STAGING, StagedFolder
from tpuctl.parallel import fanout, values
from tpuctl.runs import Run, decode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object

WIDTH = 8
"""Files fetched at once."""
RECORD = "run.json"
CHUNK = re.compile(r"attempts/([1-9][0-9]{0,8})/workers/([0-9]{1,6})/log/([0-9]{6,12})\.log")
ORDERED_CHUNK = re.compile(r"attempts/([1-9][0-9]{0,8})/log/[0-9]{8}T[0-9]{6}-([0-9]{4})-([0-9]{6})\.log")
"""A piece of a worker's log: attempt, worker, number."""

NAME_ERRORS = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""With which a file system refuses a name."""
Parts = tuple[str, ...]
"""A path below the folder."""


@dataclass(frozen=True)
class Refusal:
    """An object that was not written to this disk."""

    name: str
    reason: str
    """Fits after the name: `leads out of the folder`."""


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
    refused: tuple[Refusal, ...] = ()
    """Objects with names that must not be written, or with something else in their place."""


def pull(run: StoredRun, folder: Path, report: Report) -> PullResult:
    """Fetch a run into `folder`, without unfinished checkpoints; files that are unchanged are skipped.

    Raises NotFoundError for an unknown run, UsageError for a folder that holds something else or cannot be
    written, DeadlineError for a file that arrives damaged.
    """
    objects = run.bucket.objects(run.paths.folder)
    if not objects:
        raise run.not_found()
    check_folder(folder, run.name)
    files, uncommitted = split_committed(run.bucket, objects, run.warn)
    report(f"fetching {len(files)} files")
    waiting = f"waiting for another command that writes to {folder}"
    try:
        with StagedFolder(folder, lambda: report(waiting)) as local:
            return _Copy(run, local).fetch(files, uncommitted)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror or error}.", hint="Name another folder with --to."
        ) from error


def check_folder(folder: Path, run: str) -> None:
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
    """Whether a folder has no files, or only those of a pull that was killed at its first one."""
    return all(path.name == STAGING for path in folder.iterdir())


def _holds(folder: Path, run: str) -> bool:
    record = folder / RECORD
    return record.is_file() and decode(record.read_bytes(), Run, str(record)).run == run


class _Copy:
    """One run's files on their way into one folder."""

    def __init__(self, run: StoredRun, local: StagedFolder) -> None:
        self._run = run
        self._local = local
        self._refused: list[Refusal] = []

    def fetch(self, files: Sequence[Object], uncommitted: Iterable[str]) -> PullResult:
        """Fetch objects into the folder.

        First the record, by which the next pull recognizes the folder; last what names checkpoints, once the
        folder has them.
        """

        def stage(file: Object) -> int:
            return 0 if file.name == self._run.paths.record else 2 if is_state_file(file) else 1

        places = self._places(files, self._local.fold)
        fetched: dict[str, bool] = {}
        for number in range(3):
            batch = [file for file in places if stage(file) == number]
            results = values(fanout(lambda file: self._fetch(file, places[file]), batch, width=WIDTH))
            fetched |= {file.name: new for file, new in zip(batch, results, strict=True) if new is not None}
        self._join_logs([places[file] for file in places if file.name in fetched])
        return PullResult(
            folder=self._local.path,
            files=len(fetched),
            size=sum(file.size for file in places if file.name in fetched),
            unchanged=list(fetched.values()).count(False),
            uncommitted=tuple(uncommitted),
            refused=tuple(sorted(self._refused, key=lambda refusal: refusal.name)),
        )

    def _places(self, files: Iterable[Object], fold: Fold) -> dict[Object, Parts]:
        """Return the path of each object that gets one: tpuctl's own files first, then the deepest."""
        parts: dict[Object, Parts] = {}
        for file in files:
            try:
                parts[file] = local_parts(file.name.removeprefix(self._run.paths.folder))
            except UnsafeNameError as error:
                self._refuse(file.name, str(error))
        taken = Places(fold)
        for log in sorted({_joined_log(*chunk[:2]) for chunk in map(_chunk, parts.values()) if chunk}):
            taken.take(log)
        places = {}
        for file in sorted(parts, key=lambda file: (parts[file] != (RECORD,), -len(parts[file]), file.name)):
            try:
                taken.take(parts[file])
                places[file] = parts[file]
            except UnsafeNameError as error:
                self._refuse(file.name, str(error))
        return places

    def _fetch(self, file: Object, parts: Parts) -> bool | None:
        """Fetch one object and return True, False if the folder has it already, None if it is refused."""
        try:
            if self._local.has(parts, file.content):
                return False
            with self._local.staged(parts) as path:
                self._run.bucket.download(file, path)
        except NotAFileError as error:
            self._refuse(file.name, str(error))
            return None
        except OSError as error:
            if error.errno not in NAME_ERRORS:
                raise
            self._refuse(file.name, "cannot be the name of a file on this disk")
            return None
        return True

    def _join_logs(self, paths: Iterable[Parts]) -> None:
        """Join each worker's log chunks into logs/attempt-K-worker-I.log, for people."""
        logs: dict[Parts, list[tuple[int, Parts]]] = {}
        for parts in paths:
            if chunk := _chunk(parts):
                logs.setdefault(_joined_log(*chunk[:2]), []).append((int(chunk[2]), parts))
        for log, chunks in logs.items():
            try:
                self._local.join([parts for _, parts in sorted(chunks)], log)
            except NotAFileError as error:
                self._refuse(self._run.paths.folder + "/".join(log), str(error))

    def _refuse(self, name: str, reason: str) -> None:
        self._refused.append(Refusal(name, reason))


def _chunk(parts: Parts) -> tuple[str, ...] | None:
    """Return attempt, worker and number of a log chunk, or None for any other path."""
    path = "/".join(parts)
    match = CHUNK.fullmatch(path)
    if match:
        return match.groups()
    ordered = ORDERED_CHUNK.fullmatch(path)
    return (ordered[1], str(int(ordered[2])), ordered[3]) if ordered else None


def _joined_log(attempt: str, worker: str) -> Parts:
    return "logs", f"attempt-{attempt}-worker-{worker}.log"
