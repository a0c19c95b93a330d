"""Bringing a run home: committed checkpoints, logs and records, each file verified."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import RunPaths
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.objects import Content
from tpuctl.parallel import fanout, values
from tpuctl.runs import Run, decode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

TENSORFLOW_PIECE = re.compile(r"(?P<prefix>.+)\.(index|data-\d{5}-of-\d{5})")
STATE_FILE = "checkpoint"
"""TensorFlow writes it last: what it does not name was never finished, or is superseded."""
NAMED = re.compile(r'^(?:all_)?model_checkpoint_paths?: "(?P<path>[^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Pulled:
    """What came home."""

    folder: Path
    files: int
    size: int
    kept: int
    """Files that were here already, with the right checksum."""
    uncommitted: tuple[str, ...]
    """Pieces of checkpoints that no state file names: left in the bucket."""


def pull(bucket: Bucket, run: str, folder: Path, tell: Callable[[str], None]) -> Pulled:
    """Fetch everything of a run that counts into `folder`; what is here and right is not fetched again.

    Raises NotFoundError for a run that is not there, StateError for a file that arrives damaged.
    """
    paths = RunPaths(run)
    objects = bucket.objects(paths.folder)
    if not objects:
        raise NotFoundError(f"There is no run '{run}'.", hint="'tpuctl runs' lists them.", run=run)
    _check_folder(folder, run)
    wanted, uncommitted = committed(bucket, objects)
    tell(f"fetching {len(wanted)} files")
    try:
        fetched = values(fanout(lambda item: _fetch(bucket, item, paths.folder, folder), wanted, width=8))
        _join_logs(folder)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror or error}.", hint="Name another folder with --to."
        ) from error
    return Pulled(
        folder, len(wanted), sum(one.size for one in wanted), fetched.count(False), tuple(uncommitted)
    )


def _check_folder(folder: Path, run: str) -> None:
    """Only a new or empty folder, or one with an earlier pull of this run: nothing else gets our files."""
    try:
        if folder.is_dir() and any(folder.iterdir()) and not _holds(folder, run):
            raise UsageError(
                f"{folder} has files that are not of run '{run}'.", hint="Name another folder with --to."
            )
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read: {error.strerror}.", hint="Name another folder."
        ) from error


def _holds(folder: Path, run: str) -> bool:
    record = folder / "run.json"
    return record.is_file() and decode(record.read_bytes(), Run, str(record)).run == run


def committed(bucket: Bucket, objects: Iterable[Object]) -> tuple[list[Object], list[str]]:
    """Return the objects worth having, state files last, and the names of unfinished checkpoints' pieces."""
    listed = [one for one in objects if not one.name.endswith("/")]
    states = [one for one in listed if one.name.rpartition("/")[2] == STATE_FILE]
    named = {path for state in states for path in _named(bucket, state)}
    wanted, uncommitted = [], []
    for one in listed:
        piece = TENSORFLOW_PIECE.fullmatch(one.name)
        if one in states:
            continue
        if piece and "/checkpoints/" in one.name and piece["prefix"] not in named:
            uncommitted.append(one.name)
        else:
            wanted.append(one)
    return wanted + states, uncommitted


def _named(bucket: Bucket, state: Object) -> Iterable[str]:
    """The checkpoints that a state file names, as names in the bucket; its paths are relative or gs://."""
    folder = state.name.rpartition("/")[0]
    for path in NAMED.findall(bucket.read(state.name).decode("utf-8", "replace")):
        if path.startswith("gs://"):
            yield path.removeprefix(f"gs://{bucket.name}/")
        else:
            yield f"{folder}/{path}"


def _fetch(bucket: Bucket, item: Object, prefix: str, folder: Path) -> bool:
    """Fetch one object unless it is here; True when it was fetched."""
    path = folder / item.name.removeprefix(prefix)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise StateError(f"{item.name} would leave {folder}.", hint="Somebody put a strange name there.")
    if path.is_file() and path.stat().st_size == item.size and Content.of_file(path) == item.content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    bucket.download(item, path)
    if Content.of_file(path) != item.content:
        path.unlink()
        raise StateError(f"{item.name} arrived damaged.", hint="Pull again.")
    return True


def _join_logs(folder: Path) -> None:
    """Put each worker's chunks together as logs/ATTEMPT-WORKER.log, for people."""
    for chunks in sorted(folder.glob("attempts/*/workers/*/log")):
        attempt, worker = chunks.parts[-4], chunks.parts[-2]
        target = folder / "logs" / f"attempt-{attempt}-worker-{worker}.log"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"".join(one.read_bytes() for one in sorted(chunks.glob("*.log"))))
