"""Reads files of this machine's disks as a tree."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tpuctl.data.source import changed
from tpuctl.data.trees.tree import LARGEST, Entry, ListedFile
from tpuctl.polling import Sleep

_TICK = 20_000_000
"""Nanoseconds within which a file system may give two writes the same time (Linux: up to 10 ms)."""


class LocalTree:
    """The files below a folder, or one file in it; a file's stamp is when it was last written to."""

    is_remote = False

    def __init__(self, root: Path, only: str = "") -> None:
        self.root = root
        self.only = only

    @classmethod
    def at(cls, path: Path) -> LocalTree:
        """Return the tree of a folder, or of a file alone."""
        return cls(path) if path.is_dir() else cls(path.parent, path.name)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.only or self.root.name

    def __str__(self) -> str:
        return str(self.root / self.only)

    def scan(self, folder: str) -> list[Entry]:
        """As `Tree.scan`; a link that leaves the tree has a problem, and so has a name that is not UTF-8."""
        with os.scandir(self.root / folder) as scanned:
            entries = [self._entry(folder, entry) for entry in scanned if not entry.name.startswith(".")]
        return sorted(entries)

    def look(self, path: str) -> Entry | None:
        """As `Tree.look`; the only file may be a link to anywhere: the user has named it."""
        full, named = self.root / path, path == self.only
        problem = self._problem(path) if full.is_symlink() and not named else _not_text(full.name)
        if problem:
            return Entry(full.name, "other", problem=problem)
        try:
            status = full.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not named and not full.resolve().is_relative_to(self.root.resolve()):
            return Entry(full.name, "other", problem="lies behind a link that leaves the source")
        if stat.S_ISDIR(status.st_mode):
            return Entry(full.name, "folder")
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for a writer
            return Entry(full.name, "other", problem="is no regular file")
        return Entry(full.name, "file", status.st_size, modified(status))

    def read(self, file: ListedFile) -> bytes:
        """As `Tree.read`."""
        path = os.path.join(self.root, file.path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            if status.st_size > LARGEST:
                size = f"it has {status.st_size} bytes, and at most {LARGEST} are read"
                raise OSError(errno.EFBIG, size, path)
            data = os.read(descriptor, status.st_size + 1)
            while 0 < len(data) < status.st_size and (
                more := os.read(descriptor, status.st_size - len(data))
            ):
                data += more
            if (file.size, file.stamp) != (len(data), modified(status)):
                raise changed(file.path, "has changed")
            return data
        finally:
            os.close(descriptor)

    def read_each(self, files: Sequence[ListedFile]) -> Iterator[bytes | OSError]:
        """As `Tree.read_each`; the system reads ahead."""
        return map(_errors_as_values(self.read), files)

    def read_heads(self, files: Sequence[ListedFile], size: int) -> Iterator[bytes | OSError]:
        """As `Tree.read_heads`."""

        def head(file: ListedFile) -> bytes:
            descriptor = os.open(os.path.join(self.root, file.path), os.O_RDONLY)
            try:
                return os.read(descriptor, size)
            finally:
                os.close(descriptor)

        return map(_errors_as_values(head), files)

    def open(self, file: ListedFile) -> LocalRanges:
        """As `Tree.open`."""
        return LocalRanges(os.open(os.path.join(self.root, file.path), os.O_RDONLY))

    def stream(self, file: ListedFile) -> IO[bytes]:
        """As `Tree.stream`."""
        return self.local_path(file).open("rb")

    def local_path(self, file: ListedFile) -> Path:
        """As `Tree.local_path`."""
        return self.root / file.path

    def check(self, file: ListedFile) -> None:
        """As `Tree.check`."""
        try:
            status = self.local_path(file).stat()
        except OSError as error:
            raise changed(file.path, "was removed") from error
        if (file.size, file.stamp) != (status.st_size, modified(status)):
            raise changed(file.path, "has changed")

    def below(self, folder: str) -> LocalTree:
        """As `Tree.below`."""
        return LocalTree(self.root / folder)

    def again(self) -> LocalTree:
        """Return the tree, which remembers nothing."""
        return self

    def settle(self, newest: int, sleep: Sleep = time.sleep, now: Callable[[], int] = time.time_ns) -> None:
        """As `Tree.settle`."""
        if 0 <= (remaining := newest + _TICK - now()) <= _TICK:
            sleep(remaining / 1e9)

    def _entry(self, folder: str, entry: os.DirEntry[str]) -> Entry:
        problem = self._problem(f"{folder}/{entry.name}") if entry.is_symlink() else _not_text(entry.name)
        if problem:
            return Entry(entry.name, "other", problem=problem)
        if entry.is_dir():
            return Entry(entry.name, "folder")
        if not entry.is_file():
            return Entry(entry.name, "other")
        status = entry.stat()
        return Entry(entry.name, "file", status.st_size, modified(status))

    def _problem(self, link: str) -> str:
        """Return why a link cannot be followed; empty if it can."""
        not_text = _not_text(link.rpartition("/")[2])
        full = self.root / link.lstrip("/")
        try:
            target = full.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a loop, before Python 3.13
            return not_text or "is a link that leads nowhere"
        if not target.is_relative_to(self.root.resolve()):
            return not_text or f"is a link that leaves the source, to '{target}'"
        above = (folder for folder in full.parents if folder.is_relative_to(self.root))
        if target.is_dir() and any(folder.resolve().is_relative_to(target) for folder in above):
            return not_text or "is a link to a folder that it lies in"
        return not_text


class LocalRanges:
    """An open file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        data = os.pread(self._descriptor, size, at)
        while len(data) < size and (more := os.pread(self._descriptor, size - len(data), at + len(data))):
            data += more
        return data

    def close(self) -> None:
        """As `Ranges.close`."""
        os.close(self._descriptor)


def modified(status: os.stat_result) -> int:
    """Return when a file was last written to or replaced, in nanoseconds."""
    return max(status.st_mtime_ns, status.st_ctime_ns)


def _errors_as_values(
    read: Callable[[ListedFile], bytes],
) -> Callable[[ListedFile], bytes | OSError]:
    def attempt(file: ListedFile) -> bytes | OSError:
        try:
            return read(file)
        except OSError as error:
            return error

    return attempt


def _not_text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return ""
