"""Writes each shard to a local folder first (`--keep`), and uploads it from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.atomic_files import replace_file
from tpuctl.errors import StateError, UsageError
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError
from tpuctl.local.object_names import UnsafeNameError, local_parts

if TYPE_CHECKING:
    from tpuctl.data.output.shards import ShardStream

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
