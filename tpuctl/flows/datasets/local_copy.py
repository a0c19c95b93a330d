"""Writes each shard to a local folder first (`--keep`), and uploads it from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.atomic_files import replace_file
from tpuctl.errors import StateError

if TYPE_CHECKING:
    from tpuctl.data.output.shards import ShardStream

_BLOCK = 1 << 20


class LocalCopy:
    """The folder that gets the files of a dataset."""

    def __init__(self, folder: Path) -> None:
        """Make the folder; raises StateError where that cannot be."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._cannot_write(folder, error) from error

    def first(self, shard: ShardStream, file: str) -> Iterator[bytes]:
        """Write a shard to its file, complete or not at all, and return an iterator that reads the file."""
        self.copy(shard, file)
        return self._read(self._folder / file)

    def copy(self, shard: ShardStream, file: str) -> None:
        """Write a shard to its file, complete or not at all."""
        self._write(self._folder / file, iter(shard))

    def write(self, file: str, data: bytes) -> None:
        """Write one of the small files."""
        self._write(self._folder / file, iter([data]))

    def _read(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                yield block

    def _write(self, path: Path, chunks: Iterator[bytes]) -> None:
        try:
            replace_file(path, chunks)
        except OSError as error:
            raise self._cannot_write(path, error) from error

    def _cannot_write(self, path: Path, error: OSError) -> StateError:
        return StateError(
            f"Cannot write '{path}': {error.strerror}.",
            hint="Free some space, give another folder, or run it without --keep: the upload needs no copy.",
            file=str(path),
        )
