"""Reads files of this machine's disks as a tree.

- Offers some files of a folder as a tree: those whose names a pattern with *, ?, [] or {0..9} means.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from itertools import product
from pathlib import Path
from typing import IO

from tpuctl.data.source import changed
from tpuctl.data.trees.tree import LARGEST, Entry, ListedFile, Ranges, Tree
from tpuctl.errors import UsageError
from tpuctl.polling import Sleep

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
_WILD = re.compile(r"[*?\[]")
_MOST = 100_000
"""Names that braces may mean."""


_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


class NamePattern:
    """The last part of a path, as shells and WebDataset write several names: `*.csv`, `a-{000..009}.tar`."""

    def __init__(self, text: str) -> None:
        """Raises UsageError for braces that mean more than a hundred thousand names."""
        self.text = text
        names = _expanded(text)
        self._names = frozenset(name for name in names if not _WILD.search(name))
        self._patterns = [re.compile(translate(name)) for name in names if _WILD.search(name)]

    def matches(self, name: str) -> bool:
        """Tell whether it means a file of this name."""
        return name in self._names or any(pattern.match(name) for pattern in self._patterns)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the names that it gives one by one and that are not there."""
        return sorted(self._names.difference(names))


def name_pattern(path: str) -> NamePattern | None:
    """Return the pattern in the last part of a path; None where it is a plain name."""
    text = path.rpartition("/")[2]
    braces = any(_RANGE.fullmatch(inner) or "," in inner for inner in _BRACES.findall(text))
    return NamePattern(text) if braces or _WILD.search(text) else None


class PatternTree:
    """The files directly in the root of another tree whose names a pattern means."""

    only = ""

    def __init__(self, tree: Tree, pattern: NamePattern) -> None:
        """Raises UsageError where there is none, or one that it gives by its name is missing."""
        self._tree = tree
        self._pattern = pattern
        names = [entry.name for entry in self.scan("")]
        if missing := pattern.missing(names):
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UsageError(
                f"'{pattern.text}' names '{missing[0]}'{others}, not in '{tree}'.",
                hint="Copy the missing files, or name those that are there.",
                source=str(self),
            )
        if not names:
            raise UsageError(
                f"There is no file '{pattern.text}' in '{tree}'.", hint="Check the pattern.", source=str(self)
            )

    @property
    def name(self) -> str:
        """As `Tree.name`."""
        return self._pattern.text

    @property
    def is_remote(self) -> bool:
        """As `Tree.is_remote`."""
        return self._tree.is_remote

    def __str__(self) -> str:
        return f"{self._tree}/{self._pattern.text}"

    def scan(self, folder: str) -> list[Entry]:
        """As `Tree.scan`."""
        entries = self._tree.scan(folder)
        return entries if folder else [entry for entry in entries if self._means(entry.name)]

    def look(self, path: str) -> Entry | None:
        """As `Tree.look`."""
        return self._tree.look(path) if self._means(path) else None

    def read(self, file: ListedFile) -> bytes:
        """As `Tree.read`."""
        return self._tree.read(file)

    def read_each(self, files: Sequence[ListedFile]) -> Iterator[bytes | OSError]:
        """As `Tree.read_each`."""
        return self._tree.read_each(files)

    def read_heads(self, files: Sequence[ListedFile], size: int) -> Iterator[bytes | OSError]:
        """As `Tree.read_heads`."""
        return self._tree.read_heads(files, size)

    def open(self, file: ListedFile) -> Ranges:
        """As `Tree.open`."""
        return self._tree.open(file)

    def stream(self, file: ListedFile) -> IO[bytes]:
        """As `Tree.stream`."""
        return self._tree.stream(file)

    def local_path(self, file: ListedFile) -> Path | None:
        """As `Tree.local_path`."""
        return self._tree.local_path(file)

    def check(self, file: ListedFile) -> None:
        """As `Tree.check`."""
        self._tree.check(file)

    def below(self, folder: str) -> Tree:
        """As `Tree.below`."""
        return self._tree.below(folder) if folder else self

    def again(self) -> PatternTree:
        """As `Tree.again`; raises UsageError where none is left."""
        return PatternTree(self._tree.again(), self._pattern)

    def settle(self, newest: int) -> None:
        """As `Tree.settle`."""
        self._tree.settle(newest)

    def _means(self, path: str) -> bool:
        return self._pattern.matches(path.partition("/")[0])


def _expanded(text: str) -> list[str]:
    """Return the names that braces mean: `{08..10}` are 08, 09 and 10, `{a,b}` are a and b."""
    parts: list[Sequence[str]] = []
    end, total = 0, 1
    for match in _BRACES.finditer(text):
        parts += [[text[end : match.start()]], _alternatives(match)]
        end, total = match.end(), total * len(parts[-1])
        if total > _MOST:
            raise _too_many(text)
    return ["".join(chosen) for chosen in product(*parts, [text[end:]])]


def _alternatives(match: re.Match[str]) -> Sequence[str]:
    inner = match[1]
    if numbers := _RANGE.fullmatch(inner):
        first, last = numbers.groups()
        step = 1 if int(first) <= int(last) else -1
        if abs(int(last) - int(first)) >= _MOST:
            raise _too_many(match.string)
        width = len(first) if first.startswith("0") or last.startswith("0") else 0
        return [str(number).zfill(width) for number in range(int(first), int(last) + step, step)]
    return inner.split(",") if "," in inner else [match[0]]


def _too_many(text: str) -> UsageError:
    return UsageError(f"'{text}' means more than {_MOST} files.", hint="Give their folder.", source=text)


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
        problem = self._problem(path) if os.path.islink(full) and not named else _not_text(full.name)
        if problem:
            return Entry(full.name, "other", problem=problem)
        try:
            status = full.stat()
        except ValueError:  # a NUL, as annotations may have it
            return None
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
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
