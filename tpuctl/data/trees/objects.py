"""Reads the objects of a bucket as a tree: listed by folder, fetched by many requests at once."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tpuctl.bucket_objects.listed import ListedObject, ListedObjects
from tpuctl.data.source import changed
from tpuctl.data.trees.fetching import PART, ReadAhead, in_turn
from tpuctl.data.trees.folder_scans import FolderScans, entry_of
from tpuctl.data.trees.name_patterns import PatternTree, name_pattern
from tpuctl.data.trees.remembered import RememberedFiles
from tpuctl.data.trees.tree import LARGEST, Entry, ListedFile, RangeStream
from tpuctl.errors import NotFoundError, UsageError, nearest

WIDTH = 24
"""Requests at once, of all that read a tree."""
_STREAM_BUFFER = 1 << 20


class ObjectTree:
    """The objects below a prefix, or one object; a file's stamp is its generation."""

    is_remote = True

    def __init__(
        self, objects: ListedObjects, root: str, only: str = "", pool: ThreadPoolExecutor | None = None
    ) -> None:
        """`root` ends in a slash, unless it is empty for the whole bucket."""
        self._objects = objects
        self._root = root
        self._pool = pool or ThreadPoolExecutor(WIDTH, thread_name_prefix="object")
        self._scans = FolderScans(objects, root, self._pool)
        self._remembered = RememberedFiles()
        self.only = only

    @property
    def name(self) -> str:
        """Last part of the prefix; the bucket's name where that is empty."""
        return self.only or self._root.rstrip("/").rpartition("/")[2] or self._objects.bucket

    def __str__(self) -> str:
        return f"gs://{self._objects.bucket}/{self._root}{self.only}".rstrip("/")

    def scan(self, folder: str) -> list[Entry]:
        """As `Tree.scan`; what no file can be called has a problem, and so has what is stored packed."""
        return self._scans.scan(folder)

    def look(self, path: str) -> Entry | None:
        """As `Tree.look`."""
        item = self._objects.find(self._root + path)
        if item:
            return entry_of(item, path.rpartition("/")[2])
        below = self._objects.page(f"{self._root}{path}/", most=1)
        is_folder = bool(below.items or below.folders)
        return Entry(path.rpartition("/")[2], "folder") if is_folder else None

    def read(self, file: ListedFile) -> bytes:
        """As `Tree.read`."""
        remembered = self._remembered.take(file)
        if remembered is not None:
            return remembered
        if file.size > LARGEST:
            size = f"it has {file.size} bytes, and at most {LARGEST} are read"
            raise OSError(errno.EFBIG, size, file.path)
        if file.size <= PART:
            return self._fetch(file, 0, file.size)
        return b"".join(
            self._fetch(file, start, min(start + PART, file.size)) for start in range(0, file.size, PART)
        )

    def read_each(self, files: Sequence[ListedFile]) -> Iterator[bytes | OSError]:
        """As `Tree.read_each`."""
        return in_turn(self._pool, self.read, files, lambda file: file.size)

    def read_heads(self, files: Sequence[ListedFile], size: int) -> Iterator[bytes | OSError]:
        """As `Tree.read_heads`; a small file is fetched whole, and remembered for `read` as space allows."""

        def head(file: ListedFile) -> bytes:
            if not self._remembered.has_space(file):
                return self._fetch(file, 0, min(size, file.size))
            data = self._fetch(file, 0, file.size)
            self._remembered.add(file, data)
            return data

        return in_turn(self._pool, head, files, lambda file: min(file.size, PART))

    def open(self, file: ListedFile) -> ObjectRanges:
        """As `Tree.open`."""
        return ObjectRanges(self, file)

    def stream(self, file: ListedFile) -> IO[bytes]:
        """As `Tree.stream`; what follows is fetched ahead."""
        ranges = ReadAhead(self._pool, lambda start, end: self._fetch(file, start, end), file.size)
        return io.BufferedReader(RangeStream(ranges, file.size), _STREAM_BUFFER)

    def local_path(self, file: ListedFile) -> Path | None:
        """Return None: an object is on no disk."""
        return None

    def check(self, file: ListedFile) -> None:
        """As `Tree.check`."""
        item = self._objects.find(self._root + file.path)
        if item is None:
            raise changed(file.path, "was removed")
        if item.generation != file.stamp:
            raise changed(file.path, "has changed")

    def below(self, folder: str) -> ObjectTree:
        """As `Tree.below`."""
        return ObjectTree(self._objects, f"{self._root}{folder}/", pool=self._pool)

    def again(self) -> ObjectTree:
        """As `Tree.again`."""
        return ObjectTree(self._objects, self._root, self.only, self._pool)

    def settle(self, newest: int) -> None:
        """Return at once: each write gives an object another generation."""

    def _fetch(self, file: ListedFile, start: int, end: int) -> bytes:
        item = ListedObject(self._root + file.path, file.size, file.stamp, file.checksum)
        try:
            return self._objects.read(item, start, end)
        except NotFoundError:
            self.check(file)
            raise


@dataclass(frozen=True)
class ObjectRanges:
    """An object that is read at any place, a request for each read."""

    tree: ObjectTree
    file: ListedFile

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        end = min(at + size, self.file.size)
        return self.tree._fetch(self.file, at, end) if at < end else b""

    def close(self) -> None:
        """Do nothing: no connection is held."""


def object_tree(objects: ListedObjects, path: str) -> ObjectTree | PatternTree:
    """Return the tree of a folder of the bucket, of one object, or of those that a pattern means.

    The path has no bucket. Raises UsageError where there is nothing, or a folder and an object.
    """
    try:
        return _plain_tree(objects, path)
    except NothingThereError:
        if (pattern := name_pattern(path)) is None:
            raise
    return PatternTree(_plain_tree(objects, path.rpartition("/")[0]), pattern)


def _plain_tree(objects: ListedObjects, path: str) -> ObjectTree:
    uri = f"gs://{objects.bucket}/{path}"
    item = objects.find(path) if path and not path.endswith("/") else None
    folder = path.rstrip("/") + "/" if path else ""
    below = objects.page(folder, most=2)
    is_folder = bool(below.folders or [listed for listed in below.items if listed.name != folder])
    if item and is_folder:
        raise UsageError(
            f"{uri} is an object, and there are objects in a folder of that name.",
            hint=f"Give the folder as {uri}/, or move the object.",
            source=uri,
        )
    if is_folder:
        return ObjectTree(objects, folder)
    if item is None:
        raise _nothing(objects, path, uri)
    parent, slash, name = path.rpartition("/")
    if problem := entry_of(item, name).problem:
        raise UsageError(f"{uri} {problem}.", hint="Store it as it is.", source=uri)
    return ObjectTree(objects, parent + slash, name)


class NothingThereError(UsageError):
    """Nothing is at a path of a bucket."""


def _nothing(objects: ListedObjects, path: str, uri: str) -> NothingThereError:
    parent, slash, name = path.rstrip("/").rpartition("/")
    page = objects.page(parent + slash)
    names = [listed.removeprefix(parent + slash).rstrip("/") for listed in page.folders]
    names += [item.name.removeprefix(parent + slash) for item in page.items]
    close = nearest(name, [listed for listed in names if listed and listed != name])
    return NothingThereError(
        f"There is nothing at {uri}.",
        hint=f"Did you mean {' or '.join(close)}?" if close else f"gcloud storage ls gs://{objects.bucket}",
        source=uri,
        nearest=close,
    )
