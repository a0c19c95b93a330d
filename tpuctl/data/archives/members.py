"""Stores what an archive holds: names, sizes and places of its files, and why a member cannot be read.

- Tells archives by the ends of their names, in small letters.
"""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

from tpuctl.data.files.listing import PathIndex
from tpuctl.data.trees.tree import Entry
from tpuctl.errors import UsageError

ZSTANDARD = (".tar.zst", ".tzst")
ZIP, TAR, PACKED_TAR = (".zip",), (".tar",), (".tar.gz", ".tgz", *ZSTANDARD)
SUFFIXES = (*ZIP, *TAR, *PACKED_TAR)


MOST = 4_000_000
"""Members of an archive."""
STORED, DEFLATED, BZIP2 = 0, 8, 12
"""How a member is compressed, as zip numbers it."""
_NO_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and bytes that are no text; all else occurs: macOS writes U+202F into names."""
_DRIVE = re.compile(r"[A-Za-z]:")
_LITTER = frozenset({"__MACOSX"})
_LONGEST_PATH, _DEEPEST = 4096, 100
"""Characters and folders of a path, each of which is stored: Linux opens none that is longer."""
_LARGEST = (1 << 63) - 1
_BOMB_RATIO, _BOMB_SIZE = 250, 64 << 20
"""A member that unpacks to more than so many times its size, and more than so many bytes, is none."""


class Member(NamedTuple):
    """A file in an archive."""

    path: str
    """With `/`, as it is named in the archive."""
    size: int
    """Bytes of its content."""
    begin: int
    """Where its content begins in the archive; in zip files, where its header does."""
    packed: int
    """Bytes that it takes there."""
    method: int = STORED
    crc: int = -1
    """CRC-32 of its content, -1 if the archive has none."""
    problem: str = ""
    """Why it cannot be read, to complete a sentence about it."""


class Members:
    """The files of an archive, in about 100 bytes each; grows by `add`, and is read after `finish`."""

    def __init__(self, archive: str) -> None:
        self._archive = archive
        self._paths = bytearray()
        self._ends = array("q", [0])  # where the path of each member ends
        self._facts = array("q")
        self._files: dict[str, array[int]] = {"": array("i")}  # folder -> the members directly in it
        self._folders: dict[str, list[str]] = {}  # folder -> names of those directly in it
        self._unusable: list[Entry] = []
        self._problems: dict[str, str] = {}
        self._index = PathIndex(0, self._path)
        self._count = 0

    def add(self, member: Member) -> None:
        """Add the next member; hidden ones and litter are left out. Raises UsageError for too many."""
        path = member.path.removeprefix("./")
        if any(part in _LITTER or (part.startswith(".") and part != "..") for part in path.split("/")):
            return
        if len(self._ends) + len(self._unusable) > MOST:
            raise UsageError(
                f"'{self._archive}' has more than {MOST} members.",
                hint="Split it into several archives, such as shards of WebDataset.",
                file=self._archive,
            )
        if why := _name_problem(path) or _size_problem(member):
            self._unusable.append(Entry(path, "other", problem=why))
        else:
            self._add(path, member)

    def finish(self) -> Members:
        """To be called once, after the last `add`."""
        self._index = PathIndex(len(self._ends) - 1, self._path)
        self._count = len(self._ends) - 1
        for number in self._index.repeats():
            self._problems[self._path(number)] = "is twice in the archive"
            self._count -= 1
        for folder in self._files:
            if self._index.first(folder) is not None:
                self._problems[folder] = "is a file and a folder at once"
        return self

    def __len__(self) -> int:
        return self._count

    def find(self, path: str) -> Member | None:
        """Return a file by its path."""
        number = self._index.first(path)
        if number is None:
            return None
        size, begin, packed, method, crc = self._facts[5 * number : 5 * number + 5]
        return Member(path, size, begin, packed, method, crc, self._problems.get(path, ""))

    def scan(self, folder: str, stamp: int) -> list[Entry]:
        """Return what is directly in a folder, by name; in the root also what has no usable name."""
        files = self._files.get(folder)
        if files is None:
            raise FileNotFoundError(2, "No such folder in the archive", folder)
        above = f"{folder}/" if folder else ""
        names = {self._path(number)[len(above) :] for number in files} | set(self._folders.get(folder, ()))
        entries = [self.look(f"{above}{name}", stamp) for name in sorted(names)]
        return [entry for entry in entries if entry] + ([] if folder else self._unusable)

    def look(self, path: str, stamp: int) -> Entry | None:
        """Return what is at a path."""
        name = path.rpartition("/")[2]
        if member := self.find(path):
            if member.problem:
                return Entry(name, "other", problem=member.problem)
            return Entry(name, "file", member.size, stamp)
        return Entry(name, "folder") if path in self._files else None

    def _add(self, path: str, member: Member) -> None:
        number = len(self._ends) - 1
        self._paths += path.encode()
        self._ends.append(len(self._paths))
        self._facts.extend((member.size, member.begin, member.packed, member.method, member.crc))
        if why := member.problem or _bomb(member):
            self._problems[path] = why
        folder = path.rpartition("/")[0]
        if folder not in self._files:
            self._add_folder(folder)
        self._files[folder].append(number)

    def _add_folder(self, folder: str) -> None:
        while folder not in self._files:
            self._files[folder] = array("i")
            folder, _, name = folder.rpartition("/")
            self._folders.setdefault(folder, []).append(name)

    def _path(self, number: int) -> str:
        return self._paths[self._ends[number] : self._ends[number + 1]].decode()


def damaged(archive: str, why: str) -> UsageError:
    """Return the error for an archive that cannot be read to its end."""
    return UsageError(
        f"'{archive}' is a damaged archive, or none: {why}.", hint="Copy it again.", file=archive
    )


def _name_problem(path: str) -> str:
    parts = path.split("/")
    if not path or path.startswith("/") or "\\" in path or ".." in parts or _DRIVE.match(path):
        return "has a name that leads out of the archive"
    too_long = len(path) > _LONGEST_PATH or len(parts) > _DEEPEST
    if too_long or "" in parts or "." in parts or _NO_NAME.search(path):
        return "has a name that no file can have"
    return ""


def _size_problem(member: Member) -> str:
    return "has a size that no file can have" if member.size > _LARGEST else ""


def _bomb(member: Member) -> str:
    if member.size > _BOMB_SIZE and member.size > _BOMB_RATIO * max(member.packed, 1):
        return f"unpacks to {member.size // max(member.packed, 1)} times its size"
    return ""
