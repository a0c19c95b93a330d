"""Reads Orbax's checkpoints, also those that Flax and MaxText write by it.

In a bucket a checkpoint is written at its place and counts once it has `commit_success.txt`
(orbax/checkpoint/_src/path/atomicity.py, `CommitFileTemporaryPath.validate_final`). With
AtomicityMode.ATOMIC_RENAME it is written as NAME.orbax-checkpoint-tmp*, then renamed
(`validate_atomic_rename_final_path`): such a name never counts, and as a bucket renames file by file, neither
does the final name while the other is there. Both modes write `commit_timestamp_nsecs` into
`_CHECKPOINT_METADATA` once everything else is written.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

import msgspec

from tpuctl.bucket_objects.decoding import DecodeError, decode
from tpuctl.flows.runs.checkpoints.checkpoint import Checkpoint, below, step_of
from tpuctl.flows.runs.checkpoints.listing import FOLDER, Listing

COMMITTED = "commit_success.txt"
METADATA = "_CHECKPOINT_METADATA"
TEMPORARY = ".orbax-checkpoint-tmp"
LARGEST_METADATA = 4 << 20
"""Most bytes of `_CHECKPOINT_METADATA`, in which a user may store more."""
_FILES = frozenset({COMMITTED, METADATA, "_METADATA", "manifest.ocdbt", "_sharding"})
_FOLDERS = re.compile(r"ocdbt\.process_\d+|array_metadatas")
_STEP = re.compile(r"(?:.*_)?\d+")
"""Name of a step's folder, _src/path/step.py."""


class StepMetadata(msgspec.Struct, frozen=True):
    """What counts of `_CHECKPOINT_METADATA`."""

    commit_timestamp_nsecs: int | None


def read_orbax(listing: Listing, names: Collection[str]) -> Iterator[Checkpoint]:
    """Yield the checkpoints among some names; raises GoneError."""
    folders: set[str] = set()
    for folder in sorted({*map(_step_folder, names)} - {""}, key=len):
        if folders.isdisjoint(_above(folder)):
            folders.add(folder)
    ordered = sorted(names)
    for folder in sorted(folders):
        files = tuple(below(ordered, f"{folder}/"))
        marks = tuple(mark for mark in (f"{folder}/{COMMITTED}", f"{folder}/{METADATA}") if mark in files)
        reason = _reason(listing, folder, files, ordered)
        yield Checkpoint(folder, "Orbax", step_of(folder.partition(TEMPORARY)[0]), files, marks, reason)


def _above(folder: str) -> Iterator[str]:
    """Yield the folders that a folder is in."""
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _reason(listing: Listing, folder: str, files: Sequence[str], names: Sequence[str]) -> str:
    if TEMPORARY in folder:
        return "Orbax has not renamed it yet"
    if f"{folder}/{COMMITTED}" in files:
        return ""
    has_commit_files = any(name.endswith(f"/{COMMITTED}") for name in files)
    metadata = f"{folder}/{METADATA}"
    if not has_commit_files and metadata in files and _is_finished(listing, metadata):
        place = bisect_left(names, f"{folder}{TEMPORARY}")
        renaming = any(name.startswith(f"{folder}{TEMPORARY}") for name in names[place : place + 1])
        return "Orbax is renaming it" if renaming else ""
    return f"it has no {COMMITTED}"


def _is_finished(listing: Listing, name: str) -> bool:
    try:
        metadata = decode(listing.read(name, LARGEST_METADATA) or b"{}", StepMetadata)
    except DecodeError:
        return False
    return metadata.commit_timestamp_nsecs is not None


def _step_folder(name: str) -> str:
    """Return the folder of the checkpoint that a file shows there is; empty for other files."""
    above, checkpoints, below = name.partition(FOLDER)
    *parts, file = below.split("/")
    inner = next((count for count, part in enumerate(parts) if _FOLDERS.fullmatch(part)), None)
    old_array = file == ".zarray" and any(part.isdigit() for part in parts)
    temporary = any(TEMPORARY in part for part in parts)
    if file not in _FILES and inner is None and not old_array and not temporary:
        return ""
    count = next((number for number, part in enumerate(parts[:inner]) if _is_own(part)), None)
    depth = count + 1 if count is not None else len(parts) if inner is None else inner
    return "/".join([f"{above}{checkpoints}"[:-1], *parts[:depth]])


def _is_own(part: str) -> bool:
    return TEMPORARY in part or _STEP.fullmatch(part) is not None
