"""Lists a tree with one folder per class, optionally below train/ and test/; opens no file."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.listing import Folder, Listing, unreadable
from tpuctl.data.source import Indices, Part, ScanProgress
from tpuctl.data.trees.tree import Entry, Tree
from tpuctl.errors import UsageError

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
