"""Copies a dataset to a folder of this machine: every file verified by the manifest, which comes last."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.data.output.manifest import FILE, Manifest, decode_manifest, encode_manifest
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.progress import Report
from tpuctl.local.confined_folder import NotAFileError
from tpuctl.local.object_names import UnsafeNameError, local_parts
from tpuctl.local.staged_folder import STAGING, StagedFolder
from tpuctl.object_content import Content
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

WIDTH = 8
"""Files fetched at once."""
_PENDING = ".tpuctl-dataset"
"""Says of a folder without a manifest yet which dataset is on its way there."""


@dataclass(frozen=True)
class DatasetCopy:
    """A dataset in a folder."""

    folder: Path
    files: int
    size: int
    """Bytes of all files."""
    unchanged: int
    """Files that were there already, with the right checksum."""


def pull(
    bucket: Bucket, manifest: Manifest, folder: Path, report: Report, progress: Callable[[int, int], None]
) -> DatasetCopy:
    """Bring a dataset into a folder; files that are there already are not fetched again.

    Raises StateError for a dataset that is damaged, UsageError for a folder with something else, or that
    cannot be written.
    """
    _check_folder(folder, manifest)
    objects = _objects(bucket, manifest)
    try:
        with StagedFolder(
            folder, lambda: report(f"waiting for another command that writes to {folder}")
        ) as local:
            local.write(str(manifest.ref).encode(), (_PENDING,))
            local.remove((FILE,))
            report(f"fetching {len(objects)} files")
            here = _Fetch(bucket, local, sum(item.size for item in objects.values()), progress)
            new = here.all(objects)
            local.write(encode_manifest(manifest), (FILE,))
            local.remove((_PENDING,))
    except NotAFileError as error:
        raise UsageError(f"A file of the dataset {error}.", hint="Name another folder with --to.") from error
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror or error}.", hint="Name another folder with --to."
        ) from error
    size = sum(item.size for item in objects.values())
    return DatasetCopy(folder, len(objects), size, len(objects) - new)


class _Fetch:
    """Files on their way into a folder."""

    def __init__(
        self, bucket: Bucket, local: StagedFolder, size: int, progress: Callable[[int, int], None]
    ) -> None:
        self._bucket = bucket
        self._local = local
        self._size = size
        self._progress = progress
        self._here = 0
        self._lock = threading.Lock()

    def all(self, objects: dict[str, Object]) -> int:
        """Fetch what the folder lacks and return the number of files that were fetched."""
        return sum(values(fanout(lambda file: self._bring(file, objects[file]), objects, width=WIDTH)))

    def _bring(self, file: str, item: Object) -> bool:
        parts = local_parts(file)
        if self._local.has(parts, item.content):
            self._add(item.size)
            return False
        with self._local.staged(parts) as path:
            self._bucket.download(item, path, self._add)
        return True

    def _add(self, size: int) -> None:
        with self._lock:
            self._here += size
            self._progress(self._here, self._size)


def _objects(bucket: Bucket, manifest: Manifest) -> dict[str, Object]:
    """Return the object of each file in the manifest; raises StateError for one with another content."""
    listed = {
        item.name.removeprefix(manifest.ref.folder): item for item in bucket.objects(manifest.ref.folder)
    }
    contents: dict[str, Content] = {shard.file: shard.content for shard in manifest.shards}
    contents |= {file: entry.content for file, entry in manifest.files.items()}
    for file, content in contents.items():
        try:
            local_parts(file)
        except UnsafeNameError as error:
            raise StateError(f"{file} {error}.", hint=f"tpuctl data describe {manifest.ref}") from error
        if file not in listed or listed[file].content != content:
            raise StateError(
                f"{file} of the dataset {manifest.ref} is not what its manifest says.",
                hint=f"tpuctl data verify {manifest.ref}",
            )
    return {file: listed[file] for file in contents}


def _check_folder(folder: Path, manifest: Manifest) -> None:
    """Raise UsageError unless the folder is new, empty, or has this dataset or a part of it."""
    try:
        names = {path.name for path in folder.iterdir()} - {STAGING} if folder.is_dir() else set()
        if not names or _is_of(folder, manifest):
            return
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read: {error.strerror}.", hint="Name another folder."
        ) from error
    raise UsageError(
        f"{folder} has files that are not of dataset {manifest.ref}.", hint="Name another folder with --to."
    )


def _is_of(folder: Path, manifest: Manifest) -> bool:
    if (folder / _PENDING).is_file():
        return (folder / _PENDING).read_text(encoding="utf-8", errors="replace") == str(manifest.ref)
    record = folder / FILE
    return record.is_file() and decode_manifest(record.read_bytes(), None, str(record)).ref == manifest.ref
