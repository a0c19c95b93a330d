"""Reads the objects of a bucket as a tree: listed by folder, fetched by many requests at once.

- Fetches what will be asked for next by several requests at once, in bounded memory.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO

from tpuctl.bucket_objects import ListedObject, ListedObjects
from tpuctl.data.source import changed
from tpuctl.data.trees.local import PatternTree, name_pattern
from tpuctl.data.trees.tree import LARGEST, Entry, ListedFile, RangeStream
from tpuctl.errors import NotFoundError, UsageError, nearest

AHEAD, AHEAD_BYTES = 8, 16 << 20
"""Files that each reader has fetched ahead, and about how many bytes."""
PART = 4 << 20
"""Bytes of a large file that one request fetches."""
_PARTS_AHEAD = 4


def in_turn(
    pool: ThreadPoolExecutor,
    fetch: Callable[[ListedFile], bytes],
    files: Sequence[ListedFile],
    size: Callable[[ListedFile], int],
) -> Iterator[bytes | OSError]:
    """Yield what `fetch` returns for each file in turn, or its OSError; `size` is how much it will hold."""
    waiting: deque[tuple[int, Future[bytes]]] = deque()
    held = 0
    try:
        for file in files:
            expected = size(file)
            while waiting and (len(waiting) >= AHEAD or held + expected > AHEAD_BYTES):
                released, future = waiting.popleft()
                yield _result(future)
                held -= released
            waiting.append((expected, pool.submit(fetch, file)))
            held += expected
        while waiting:
            yield _result(waiting.popleft()[1])
    finally:
        for _, future in waiting:
            future.cancel()


def _result(future: Future[bytes]) -> bytes | OSError:
    try:
        return future.result()
    except OSError as error:
        return error


class ReadAhead:
    """A file that is read from one place on: the parts that follow are fetched meanwhile."""

    def __init__(self, pool: ThreadPoolExecutor, fetch: Callable[[int, int], bytes], size: int) -> None:
        """`fetch` returns the bytes from a place to before another."""
        self._pool = pool
        self._fetch = fetch
        self._size = size
        self._parts: dict[int, Future[bytes]] = {}

    def read(self, at: int, size: int) -> bytes:
        """Return bytes from a place on, at most to the end of their part."""
        number, offset = divmod(at, PART)
        following = range(number, min(number + _PARTS_AHEAD, -(-self._size // PART)))
        for passed in self._parts.keys() - set(following):
            self._parts.pop(passed).cancel()
        for part in following:
            if part not in self._parts:
                end = min((part + 1) * PART, self._size)
                self._parts[part] = self._pool.submit(self._fetch, part * PART, end)
        return self._parts[number].result()[offset : offset + size] if number in self._parts else b""

    def close(self) -> None:
        """Fetch nothing more."""
        for part in self._parts.values():
            part.cancel()
        self._parts.clear()


_AHEAD = 16
"""Folders that are listed before they are asked for."""
_PAGES_AHEAD = 4
"""Pages of each that are fetched then: a large folder waits for the rest until it is asked for."""
_MOST_HELD = 100_000
"""Entries of folders that are remembered when they were asked for: a source is scanned several times."""
_PACKED = "is stored with Content-Encoding: gzip, so that its bytes are not those of the file"
LARGEST_REMEMBERED = 1 << 20
"""Bytes of the largest file that is worth fetching whole for its head."""
MOST_IN_MEMORY = 128 << 20
"""Bytes of all that are held in memory."""
MOST_ON_DISK = 8 << 30
"""Bytes of those beyond that are held in a temporary file, if half of the disk's free space suffices."""
_Key = tuple[str, int]
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


# Remembers small files that were fetched whole when only their heads were asked for.


class RememberedFiles:
    """Contents of files until they are read, each once; from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._contents: dict[_Key, bytes] = {}
        self._size = 0
        self._on_disk: dict[_Key, tuple[int, int]] = {}
        self._descriptor = -1
        self._written = 0
        self._most_on_disk = MOST_ON_DISK

    def __del__(self) -> None:
        """Give the space of the temporary file back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def has_space(self, file: ListedFile) -> bool:
        """Return whether a file is small enough to be added."""
        is_small = file.size <= LARGEST_REMEMBERED
        return is_small and (self._fits_in_memory(file.size) or self._fits_on_disk(file.size))

    def add(self, file: ListedFile, data: bytes) -> None:
        """Remember a file, if there is space."""
        key = file.path, file.stamp
        with self._lock:
            if key in self._contents or key in self._on_disk:
                return
            if self._fits_in_memory(len(data)):
                self._contents[key] = data
                self._size += len(data)
            elif self._fits_on_disk(len(data)):
                self._write(key, data)

    def take(self, file: ListedFile) -> bytes | None:
        """Return a file that is remembered, and forget it."""
        if not self._contents and not self._on_disk:
            return None
        key = file.path, file.stamp
        with self._lock:
            data = self._contents.pop(key, None)
            self._size -= len(data or b"")
            place = self._on_disk.pop(key, None)
        if place:
            at, size = place
            data = os.pread(self._descriptor, size, at)
            return data if len(data) == size else None
        return data

    def _fits_in_memory(self, size: int) -> bool:
        return self._size + size <= MOST_IN_MEMORY

    def _fits_on_disk(self, size: int) -> bool:
        return self._written + size <= self._most_on_disk

    def _write(self, key: _Key, data: bytes) -> None:
        try:
            if self._descriptor < 0:
                self._open()
            if os.pwrite(self._descriptor, data, self._written) == len(data):
                self._on_disk[key] = (self._written, len(data))
            self._written += len(data)
        except OSError:
            self._most_on_disk = 0  # a full disk: what follows is fetched twice

    def _open(self) -> None:
        with tempfile.TemporaryFile(prefix="tpuctl-", buffering=0) as file:
            self._descriptor = os.dup(file.fileno())
        status = os.fstatvfs(self._descriptor)
        self._most_on_disk = min(MOST_ON_DISK, status.f_bavail * status.f_frsize // 2)


# Lists a bucket folder by folder; those that will be asked for next are listed at the same time.


class FolderScans:
    """The folders below a prefix, from any thread; they are scanned in the order of their names."""

    def __init__(self, objects: ListedObjects, root: str, pool: ThreadPoolExecutor) -> None:
        self._objects = objects
        self._root = root
        self._pool = pool
        self._lock = Lock()
        self._next: deque[str] = deque()
        self._under_way: dict[str, Future[_Pages]] = {}
        self._remembered: OrderedDict[str, list[Entry]] = OrderedDict()
        self._held = 0

    def scan(self, folder: str) -> list[Entry]:
        """Return what is directly in a folder, by name."""
        with self._lock:
            if folder in self._remembered:
                return self._remembered[folder]
            under_way = self._under_way.pop(folder, None)
        pages = under_way.result() if under_way else self._fetch(folder)
        pages.complete()
        entries = sorted(pages.entries)
        with self._lock:
            self._remember(folder, entries)
            below = (entry.name for entry in entries if entry.kind == "folder")
            self._next.extendleft(reversed([f"{folder}/{name}" if folder else name for name in below]))
            self._list_ahead()
        return entries

    def _list_ahead(self) -> None:
        while self._next and len(self._under_way) < _AHEAD:
            folder = self._next.popleft()
            if folder not in self._under_way and folder not in self._remembered:
                self._under_way[folder] = self._pool.submit(self._fetch, folder)

    def _remember(self, folder: str, entries: list[Entry]) -> None:
        self._held += len(entries) - len(self._remembered.get(folder, ()))
        self._remembered[folder] = entries
        while len(self._remembered) > 1 and self._held > _MOST_HELD:
            self._held -= len(self._remembered.popitem(last=False)[1])

    def _fetch(self, folder: str) -> _Pages:
        pages = _Pages(self._objects, f"{self._root}{folder}/" if folder else self._root)
        for _ in range(_PAGES_AHEAD):
            if pages.is_complete:
                break
            pages.fetch()
        return pages


class _Pages:
    """The entries of a folder as far as they were listed."""

    def __init__(self, objects: ListedObjects, prefix: str) -> None:
        self._objects = objects
        self._prefix = prefix
        self._token = ""
        self.is_complete = False
        self.entries: list[Entry] = []

    def complete(self) -> None:
        while not self.is_complete:
            self.fetch()

    def fetch(self) -> None:
        page = self._objects.page(self._prefix, self._token)
        start = len(self._prefix)
        for item in page.items:
            name = item.name[start:]
            if (name or item.size) and not _is_hidden(
                name
            ):  # a folder made by the console is an empty object
                self.entries.append(entry_of(item, name))
        for folder in page.folders:
            name = folder[start:-1]
            if not _is_hidden(name):
                problem = _problem(name)
                self.entries.append(Entry(name, "other" if problem else "folder", problem=problem))
        self._token = page.token
        self.is_complete = not page.token


def entry_of(item: ListedObject, name: str) -> Entry:
    """Return an object as the entry of this name in its folder."""
    problem = _problem(name) or (_PACKED if item.encoding == "gzip" else "")
    kind = "other" if problem else "file"
    return Entry(name, kind, item.size, item.generation, problem, item.crc32c)  # type: ignore[arg-type]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and name not in (".", "..")


def _problem(name: str) -> str:
    """Return why no file or folder of a disk can be called so."""
    if not name:
        return "has a name that ends in a slash, or has two of them in a row"
    return "has a name that no file can have" if name in (".", "..") or "\0" in name else ""
