"""Stores names, sizes and stamps of files in a few bytes each, for millions of files.

- Finds files by their paths, or by a part of them, in 12 bytes for each.
- Reads many small parts of files: parts that lie close together with one read.
- Lists a tree with one folder per class, optionally below train/ and test/; opens no file.
"""

from __future__ import annotations

import errno
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.options import BadRecord
from tpuctl.data.source import Indices, Part, ScanProgress, changed
from tpuctl.data.trees.tree import Entry, ListedFile, Tree
from tpuctl.errors import UsageError


class PathIndex:
    """The numbers of files by a key, such as the path of each."""

    def __init__(self, count: int, key: Callable[[int], str]) -> None:
        """`key` returns that of a file by its number, of which there are so many."""
        self._key = key
        hashes = np.fromiter((hash(key(number)) for number in range(count)), np.int64, count)
        order = np.argsort(hashes, kind="stable")
        self._hashes = array("q", hashes[order].tobytes())
        self._numbers = array("i", order.astype(np.intc).tobytes())

    def find(self, key: str) -> Iterator[int]:
        """Yield the numbers of the files with this key, in ascending order."""
        wanted = hash(key)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            if self._key(self._numbers[place]) == key:
                yield self._numbers[place]
            place += 1

    def first(self, key: str) -> int | None:
        """Return the first of these numbers; None without any."""
        return next(self.find(key), None)

    def repeats(self) -> Iterator[int]:
        """Yield the numbers of the files whose key an earlier one has."""
        hashes = np.frombuffer(self._hashes, np.int64)
        for place in (np.flatnonzero(hashes[1:] == hashes[:-1]) + 1).tolist():
            number = self._numbers[place]
            if self.first(self._key(number)) != number:
                yield number


_GAP = 4096
"""Bytes between two parts that are read along: that takes less than another read."""
_PIECE = 1 << 20
"""Bytes that are read at once, besides a last part that is longer."""


def read_spans(read: Callable[[int, int], bytes], spans: NDArray[np.int64]) -> list[bytes]:
    """Return the bytes from `begin` to `end` of each span, which are in the order of a file.

    `read` takes a place and a size. The bytes are fewer where the file is shorter.
    """
    begins, ends = spans[:, 0], spans[:, 1]
    apart = (begins[1:] - ends[:-1] > _GAP) | (begins[1:] // _PIECE != begins[:-1] // _PIECE)
    firsts, lasts = begins.tolist(), ends.tolist()
    parts: list[bytes] = []
    for first, after in pairwise([0, *(np.flatnonzero(apart) + 1).tolist(), len(spans)]):
        start = firsts[first]
        block = read(start, max(lasts[first:after]) - start)
        if after == first + 1:
            parts.append(block)
            continue
        bounds = zip(firsts[first:after], lasts[first:after], strict=True)
        parts += [block[begin - start : end - start] for begin, end in bounds]
    return parts


SPLIT_FOLDERS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
"""Names of split folders, in lower case, and the TFDS names of their splits."""

_LITTER = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "icon\r"})
"""What Windows, macOS and network drives leave in folders, in small letters."""
_NO_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters, and what ends a line."""
_LAYOUT = "One folder for each class, with its files in it: SOURCE/cat/1.png; or SOURCE/train/cat/1.png."


@dataclass(frozen=True)
class ClassFolders:
    """A listed tree: its files in the order of split folder, class and name; its classes over all splits."""

    files: Listing
    classes: tuple[str, ...]
    bad: list[BadRecord]

    @property
    def fingerprint(self) -> str:
        """That of the files."""
        return self.files.fingerprint

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that differ when any of these files was written to."""
        return self.files.stamp(indices)

    def check(self) -> None:
        """Raise UsageError (`changed`) if a file is new, removed or modified since the listing."""
        self.files.check(list_class_folders(self.files.tree.again()).files)

    def labels(self) -> NDArray[np.int32]:
        """Return the index of each file's class."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        of_folders = np.array([numbers[folder.label] for folder in self.files.folders], np.int32)
        return np.repeat(of_folders, self.files.counts)

    def parts(self, sizes: NDArray[np.int64]) -> tuple[Part, ...]:
        """Return the splits, which are runs of folders; `sizes` are the bytes of all records."""
        firsts: dict[str, int] = {}
        for folder, bound in zip(self.files.folders, self.files.bounds.tolist(), strict=True):
            firsts.setdefault(folder.split, bound)
        ends = [*list(firsts.values())[1:], len(self.files)][: len(firsts)]
        return tuple(
            Part(split, end - first, int(sizes[first:end].sum()))
            for (split, first), end in zip(firsts.items(), ends, strict=True)
        )

    def unreadable_record(self, index: int, error: OSError) -> BadRecord:
        """Return the bad record for a file that cannot be read; raises UsageError if it was removed."""
        name = self.files.key(index)
        if isinstance(error, FileNotFoundError):
            raise unreadable(name, error) from error
        hint = "" if error.errno == errno.EFBIG else "Check its permissions."
        return BadRecord(name, f"cannot be read: {error.strerror}", hint=hint)


def list_class_folders(tree: Tree, progress: ScanProgress = lambda listed, total: None) -> ClassFolders:
    """Return the classes and files of a tree, and as bad the entries that do not belong there.

    Raises UsageError where there are no classes at all, or folders are both splits and classes.
    """
    walk = _Walk(tree)
    for split, top in walk.split_folders():
        walk.class_folders(top, split)
    walk.files.wait_past_newest()
    classes = sorted({folder.label for folder in walk.files.folders})
    progress(len(walk.files), len(walk.files))
    bad = list(dict.fromkeys(walk.bad))  # the root is listed twice
    return ClassFolders(walk.files, tuple(classes), bad)


@dataclass
class _Walk:
    """One pass over the folders."""

    tree: Tree
    bad: list[BadRecord] = field(default_factory=list)
    files: Listing = field(init=False)

    def __post_init__(self) -> None:
        self.files = Listing(self.tree)

    def split_folders(self) -> list[tuple[str, str]]:
        """Return (split, path below the root) of each split folder, or the root alone, in no split."""
        folders = self._only_folders("")
        named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
        if named != folders and not any(self._holds_folders(name) for name in named):
            return [("", "")]
        for name in folders:
            if name not in named:
                raise _misplaced(name, f"lies beside the split folder '{named[0]}'")
        splits = [SPLIT_FOLDERS[name.lower()] for name in named]
        for split in splits:
            if splits.count(split) > 1:
                raise _misplaced(named[splits.index(split)], f"is not the only folder of the split '{split}'")
        return list(zip(splits, named, strict=True))

    def class_folders(self, top: str, split: str) -> None:
        """List the files of each class folder."""
        for name in self._only_folders(top):
            folder = _below(top, name)
            if name != name.strip() or _NO_LINE.search(name):
                # one name a line in TFDS's labels file, read back without the blanks at both ends
                self._note(folder, "has blanks around its name, or line breaks or other control characters")
                continue
            entries = list(self._entries(folder))
            if not entries:
                self._note(folder, "is empty", "Put its files there, or remove the folder.")
                continue
            self.files.start(Folder(folder, split, name))
            for entry in entries:
                if entry.kind == "file":
                    self.files.add(entry)
                else:
                    self._note(
                        _below(folder, entry.name), "lies inside a class folder and is not a file", _LAYOUT
                    )

    def _only_folders(self, folder: str) -> list[str]:
        entries = list(self._entries(folder))
        loose = [entry.name for entry in entries if entry.kind != "folder"]
        names = [entry.name for entry in entries if entry.kind == "folder"]
        if loose and not names:
            raise _misplaced(_below(folder, loose[0]), "is in no class folder")
        for name in loose:
            self._note(_below(folder, name), "is in no class folder", _LAYOUT)
        if not names:
            where = self._where(folder)
            raise UsageError(f"There are no class folders in '{where}'.", hint=_LAYOUT, file=where)
        return names

    def _holds_folders(self, name: str) -> bool:
        return any(entry.kind == "folder" for entry in self._scan(name))

    def _entries(self, folder: str) -> Iterator[Entry]:
        """Yield the entries of a folder by name, except litter; those with a problem become bad."""
        for entry in self._scan(folder):
            if entry.name.lower() in _LITTER:
                continue
            if entry.problem:
                self._note(_below(folder, entry.name), entry.problem)
            else:
                yield entry

    def _scan(self, folder: str) -> list[Entry]:
        try:
            return self.tree.scan(folder)
        except OSError as error:
            raise unreadable(self._where(folder), error) from error

    def _where(self, folder: str) -> str:
        return f"{self.tree}/{folder}" if folder else str(self.tree)

    def _note(self, path: str, why: str, hint: str = "") -> None:
        self.bad.append(BadRecord(printable(path), why, hint=hint))


def printable(name: str) -> str:
    """Return a name for messages, with the bytes that are not UTF-8 as escapes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("ascii", "backslashreplace").decode()
    return name


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _misplaced(path: str, problem: str) -> UsageError:
    return UsageError(f"'{path}' {problem}.", hint=_LAYOUT, file=path)


class Folder(NamedTuple):
    """A folder whose files follow one another in the list."""

    path: str
    """Below the root, with `/`; empty for the root itself."""
    split: str
    label: str


class Listing:
    """Files of a tree, in folders; grows by `add`, and is read by index afterwards."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.folders: list[Folder] = []
        self._bounds = array("q")  # index of each folder's first file
        self._names = bytearray()
        self._ends = array("q", [0])
        self._sizes = array("q")
        self._stamps = array("q")
        self._checksums = array("q")

    def __len__(self) -> int:
        return len(self._sizes)

    def start(self, folder: Folder) -> None:
        """Begin a folder: files that are added from now on lie in it."""
        self.folders.append(folder)
        self._bounds.append(len(self))

    def add(self, entry: Entry) -> None:
        """Add a file of the folder last begun."""
        self._names += entry.name.encode()
        self._ends.append(len(self._names))
        self._sizes.append(entry.size)
        self._stamps.append(entry.stamp)
        self._checksums.append(entry.checksum)

    def by_folder(self) -> Listing:
        """Return the files in the order of their folders' paths; those of one folder stay in their order."""
        result, ends = Listing(self.tree), [*self._bounds, len(self)]
        for number in sorted(range(len(self.folders)), key=lambda number: self.folders[number].path):
            folder = self.folders[number]
            if not result.folders or result.folders[-1] != folder:
                result.start(folder)
            result._extend(self, ends[number], ends[number + 1])
        return result

    def _extend(self, other: Listing, start: int, end: int) -> None:
        """Add some files of another listing."""
        begin = other._ends[start]
        shift = len(self._names) - begin
        self._names += other._names[begin : other._ends[end]]
        self._ends.extend(place + shift for place in other._ends[start + 1 : end + 1])
        for mine, others in (
            (self._sizes, other._sizes),
            (self._stamps, other._stamps),
            (self._checksums, other._checksums),
        ):
            mine.extend(others[start:end])

    def key(self, index: int) -> str:
        """Return a file's path below the root, with `/`."""
        name = self._names[self._ends[index] : self._ends[index + 1]].decode()
        folder = self.folders[self.folder_of(index)].path
        return f"{folder}/{name}" if folder else name

    def folder_of(self, index: int) -> int:
        """Return the number of the folder that a file is in."""
        return bisect_right(self._bounds, index) - 1

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Index of each folder's first file."""
        return np.frombuffer(self._bounds, np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of files of each folder."""
        return np.diff(np.append(self.bounds, len(self)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each file."""
        return np.frombuffer(self._sizes, np.int64)

    @property
    def stamps(self) -> NDArray[np.int64]:
        """`Entry.stamp` of each file."""
        return np.frombuffer(self._stamps, np.int64)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the names and sizes, in order."""
        digest = sha256("\n".join(folder.path for folder in self.folders).encode())
        for part in (self._bounds, self._names, self._ends, self._sizes):
            digest.update(part)
        return digest.hexdigest()

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that change when any of these files is written to, replaced or renamed."""
        names = b"\0".join(self.key(index).encode() for index in indices.tolist())
        return b"".join((names, self.sizes[indices].tobytes(), self.stamps[indices].tobytes()))

    def file(self, index: int) -> ListedFile:
        """Return a file as it was listed."""
        return ListedFile(self.key(index), self._sizes[index], self._stamps[index], self._checksums[index])

    def read(self, index: int) -> bytes:
        """Return a file's bytes; raises UsageError (`changed`) if it was written to since, OSError."""
        return self.tree.read(self.file(index))

    def read_each(self, indices: Indices) -> Iterator[bytes | OSError]:
        """Yield the bytes of each file, or why it cannot be read, as `Tree.read_each`; faster than `read`."""
        return self.tree.read_each([self.file(index) for index in indices.tolist()])

    def read_heads(self, indices: Indices, size: int) -> Iterator[bytes | OSError]:
        """Yield at least the first `size` bytes of each file, as `Tree.read_heads`."""
        return self.tree.read_heads([self.file(index) for index in indices.tolist()], size)

    def wait_past_newest(self) -> None:
        """Wait until any later write gets a later time than all files have; called once, at the end."""
        self.tree.settle(max(self._stamps, default=0))

    def check(self, again: Listing) -> None:
        """Raise UsageError (`changed`) that names a file which is not the same in a later listing."""
        if self._same(again):
            return
        before, now = dict(self._described()), dict(again._described())
        for name, status in before.items():
            if name not in now:
                raise changed(name, "was removed")
            if now[name] != status:
                raise changed(name, "has changed")
        raise changed(min(now.keys() - before.keys()), "is new")

    def _same(self, other: Listing) -> bool:
        return self.folders == other.folders and all(
            getattr(self, part) == getattr(other, part)
            for part in ("_bounds", "_names", "_ends", "_sizes", "_stamps")
        )

    def _described(self) -> Iterator[tuple[str, tuple[int, int]]]:
        return ((self.key(index), (self._sizes[index], self._stamps[index])) for index in range(len(self)))


def unreadable(name: str, error: OSError) -> UsageError:
    """Return the error for a file or folder that cannot be read."""
    return UsageError(
        f"Cannot read '{name}': {error.strerror}.",
        hint="Check that it still exists, and its permissions.",
        file=name,
    )
