"""Copies a dataset to a folder of this machine: every file verified by the manifest, which comes last.

- Writes each shard to a local folder first (`--keep`), and uploads it from there.
- Compares the objects of a dataset in the bucket with its manifest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.atomic_files import replace_file
from tpuctl.data.output.manifest import (
    FILE,
    LARGEST,
    FileEntry,
    Manifest,
    ShardEntry,
    decode_manifest,
    encode_manifest,
)
from tpuctl.data.output.shards import verify_shard
from tpuctl.display import Record
from tpuctl.errors import StateError, TpuctlError, UsageError, joined_hints
from tpuctl.flows.download_folder import check_folder, filling
from tpuctl.flows.progress import ByteCount, Progress, Report
from tpuctl.local.confined_folder import (
    ConfinedFolder,
    NotAFileError,
    UnsafeNameError,
    local_parts,
    read_file,
)
from tpuctl.object_content import Content
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object
    from tpuctl.data.output.shards import ShardStream
    from tpuctl.local.staged_folder import StagedFolder


_BLOCK = 1 << 20
_STAGING = ".tpuctl-keep"
"""A file that is not complete, and whose place is in a folder below; no dataset's file is hidden."""


class LocalCopy:
    """The folder that gets the files of a dataset."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        """Make the folder for `files`, some of which are named after columns of the source.

        Raises UsageError for a name that is not safe on a disk, StateError where the folder cannot be.
        """
        self._folder = folder
        for file in files:
            _check(file)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._cannot_write(folder, error) from error

    def first(self, shard: ShardStream, file: str) -> Iterator[bytes]:
        """Write a shard to its file, complete or not at all, and return an iterator that reads the file."""
        self.copy(shard, file)
        return self._read(self._folder.joinpath(*local_parts(file)))

    def copy(self, shard: ShardStream, file: str) -> None:
        """Write a shard to its file, complete or not at all."""
        self._write(file, iter(shard))

    def write(self, file: str, data: bytes) -> None:
        """Write one of the small files."""
        self._write(file, iter([data]))

    def _read(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                yield block

    def _write(self, file: str, chunks: Iterator[bytes]) -> None:
        parts = local_parts(file)
        path = self._folder.joinpath(*parts)
        try:
            if len(parts) == 1:
                replace_file(path, chunks)
                return
            staged = self._folder / _STAGING
            replace_file(staged, chunks)
            with ConfinedFolder(self._folder) as folder:
                folder.place(staged, parts)
        except (OSError, NotAFileError) as error:
            raise self._cannot_write(path, error) from error

    def _cannot_write(self, path: Path, error: OSError | NotAFileError) -> StateError:
        reason = error.strerror if isinstance(error, OSError) else f"it {error}"
        return StateError(
            f"Cannot write '{path}': {reason}.",
            hint="Free some space, give another folder, or run it without --keep: the upload needs no copy.",
            file=str(path),
        )


def _check(file: str) -> None:
    try:
        local_parts(file)
    except UnsafeNameError as error:
        raise UsageError(
            f"The file {file} of this dataset {error}.", hint="Rename the column, or run it without --keep."
        ) from error


WIDTH = 8
"""Files fetched at once."""
_PENDING = ".tpuctl-dataset"
"""Says of a folder without a manifest yet which dataset is on its way there."""


@dataclass(frozen=True)
class DatasetCopy(Record):
    """A dataset in a folder of this machine; `tfds.builder_from_directory` reads it."""

    folder: Path
    files: int
    bytes: int
    kept: int
    """Files that were there already, with the right checksum."""


def pull(bucket: Bucket, manifest: Manifest, folder: Path, report: Report, progress: Progress) -> DatasetCopy:
    """Bring a dataset into a folder; files that are there already are not fetched again.

    Raises StateError for a dataset that is damaged, UsageError for a folder with something else, or that
    cannot be written.
    """
    objects = _objects(bucket, manifest)
    size = sum(item.size for item in objects.values())

    def check() -> None:
        check_folder(folder, f"dataset {manifest.ref}", lambda: _is_of(folder, manifest))

    with filling(folder, report, check) as local, ByteCount(progress) as count:
        local.write(str(manifest.ref).encode(), (_PENDING,))
        local.remove((FILE,))
        report(f"fetching {len(objects)} files")
        count.expect(size)
        new = _fetch(bucket, local, objects, count)
        local.write(encode_manifest(manifest), (FILE,))
        local.remove((_PENDING,))
    return DatasetCopy(folder, len(objects), size, len(objects) - new)


def _fetch(bucket: Bucket, local: StagedFolder, objects: dict[str, Object], count: ByteCount) -> int:
    """Fetch what the folder lacks and return the number of files that were fetched."""

    def bring(file: str) -> bool:
        item, parts = objects[file], local_parts(file)
        try:
            if local.has(parts, item.content):
                count.add(item.size)
                return False
            with local.staged(parts) as path:
                bucket.download(item, path, count.add)
        except NotAFileError as error:
            raise UsageError(f"{file} {error}.", hint="Name another folder with --to.") from error
        return True

    return sum(values(fanout(bring, objects, width=WIDTH)))


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


def _is_of(folder: Path, manifest: Manifest) -> bool:
    wanted = str(manifest.ref).encode()
    try:
        return read_file(folder, _PENDING, len(wanted) + 1) == wanted
    except (FileNotFoundError, NotAFileError):
        pass
    try:
        data = read_file(folder, FILE, LARGEST + 1)
    except (FileNotFoundError, NotAFileError):
        return False
    return decode_manifest(data, None, str(folder / FILE)).ref == manifest.ref


_WIDTH = 4
_MOST_NAMED = 5


def verify(bucket: Bucket, manifest: Manifest, *, deep: bool, report: Callable[[int, int], None]) -> None:
    """Compare every object with the manifest; `deep` also reads every record of every shard.

    `report` takes the files checked so far and their number. Raises StateError that names the first few
    objects that differ, and says how many do.
    """
    folder = manifest.ref.folder
    listed = {item.name.removeprefix(folder): item for item in bucket.objects(folder)}
    expected: dict[str, ShardEntry | FileEntry] = {entry.file: entry for entry in manifest.shards}
    expected |= manifest.files
    checked, counting = 0, threading.Lock()

    def check(file: str) -> None:
        nonlocal checked
        entry = expected[file]
        _compare(file, entry, listed.get(file))
        if deep and isinstance(entry, ShardEntry):
            verify_shard(bucket.stream(listed[file]), entry, manifest.file_format)
        with counting:
            checked += 1
            report(checked, len(expected))

    report(0, len(expected))
    errors = [result.error for result in fanout(check, expected, width=_WIDTH) if result.error]
    if errors:
        raise _damaged(manifest, errors)


def _compare(file: str, entry: ShardEntry | FileEntry, listed: Object | None) -> None:
    if listed is None:
        raise StateError(f"{file} is missing.")
    if difference := listed.content.difference(entry.content):
        field, actual, expected = difference
        raise StateError(f"{file} has {field} {actual}, and its manifest says {expected}.")


def _damaged(manifest: Manifest, errors: list[TpuctlError]) -> StateError:
    named = " ".join(error.message for error in errors[:_MOST_NAMED])
    more = f" And {len(errors) - _MOST_NAMED} more." if len(errors) > _MOST_NAMED else ""
    return StateError(
        f"The dataset {manifest.ref} is damaged: {named}{more}",
        hint=joined_hints(f"Remove it: tpuctl data rm {manifest.ref}", "Upload it again: tpuctl data upload"),
        wrong=[error.message for error in errors],
    )
