"""Lists a bucket folder by folder; those that will be asked for next are listed at the same time."""

from __future__ import annotations

from collections import OrderedDict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from tpuctl.bucket_objects.listed import ListedObject, ListedObjects
from tpuctl.data.trees.tree import Entry

_AHEAD = 16
"""Folders that are listed before they are asked for."""
_PAGES_AHEAD = 4
"""Pages of each that are fetched then: a large folder waits for the rest until it is asked for."""
_MOST_HELD = 100_000
"""Entries of folders that are remembered when they were asked for: a source is scanned several times."""
_PACKED = "is stored with Content-Encoding: gzip, so that its bytes are not those of the file"


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
