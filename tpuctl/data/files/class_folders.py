"""Lists a tree with one folder per class, optionally below train/ and test/; opens no file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.listing import Folder, Listing, unreadable
from tpuctl.data.source import Indices, Part, ScanProgress
from tpuctl.errors import UsageError

SPLIT_FOLDERS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
"""Names of split folders, in lower case, and the TFDS names of their splits."""

_LITTER = ("Thumbs.db", "desktop.ini")
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
        self.files.check(list_class_folders(self.files.root).files)

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
        ends = [*list(firsts.values())[1:], len(self.files)]
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


def list_class_folders(root: Path, progress: ScanProgress = lambda listed, total: None) -> ClassFolders:
    """Return the classes and files below `root`, and as bad the entries that do not belong there.

    Raises UsageError where there are no classes at all, or folders are both splits and classes.
    """
    walk = _Walk(root)
    for split, top in walk.split_folders():
        walk.class_folders(Path(top), split)
    walk.files.wait_past_newest()
    classes = sorted({folder.label for folder in walk.files.folders})
    progress(len(walk.files), len(walk.files))
    bad = list(dict.fromkeys(walk.bad))  # the root is listed twice
    return ClassFolders(walk.files, tuple(classes), bad)


@dataclass
class _Walk:
    """One pass over the folders."""

    root: Path
    bad: list[BadRecord] = field(default_factory=list)
    files: Listing = field(init=False)

    def __post_init__(self) -> None:
        self.files = Listing(self.root)

    def split_folders(self) -> list[tuple[str, str]]:
        """Return (split, path below the root) of each split folder, or the root alone, in no split."""
        folders = self._only_folders(Path())
        named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
        if named != folders and not any(self._holds_folders(name) for name in named):
            return [("", "")]
        for name in folders:
            if name not in named:
                raise _misplaced(Path(name), f"lies beside the split folder '{named[0]}'")
        splits = [SPLIT_FOLDERS[name.lower()] for name in named]
        for split in splits:
            if splits.count(split) > 1:
                raise _misplaced(
                    Path(named[splits.index(split)]), f"is not the only folder of the split '{split}'"
                )
        return list(zip(splits, named, strict=True))

    def class_folders(self, top: Path, split: str) -> None:
        """List the files of each class folder."""
        for name in self._only_folders(top):
            if name != name.strip() or not name.isprintable():
                # one name a line in TFDS's labels file, read back without the blanks at both ends
                self._note(top / name, "has blanks around its name, or characters that do not print")
                continue
            entries = list(self._entries(top / name))
            if not entries:
                self._note(top / name, "is empty", "Put its files there, or remove the folder.")
                continue
            self.files.start(Folder((top / name).as_posix(), split, name))
            for entry in entries:
                if entry.is_file():
                    self.files.add(entry.name, entry.stat())
                else:
                    self._note(
                        top / name / entry.name, "lies inside a class folder and is not a file", _LAYOUT
                    )

    def _only_folders(self, folder: Path) -> list[str]:
        entries = list(self._entries(folder))
        loose = [entry.name for entry in entries if not entry.is_dir()]
        names = [entry.name for entry in entries if entry.is_dir()]
        if loose and not names:
            raise _misplaced(folder / loose[0], "is in no class folder")
        for name in loose:
            self._note(folder / name, "is in no class folder", _LAYOUT)
        if not names:
            raise UsageError(
                f"There are no class folders in '{self.root / folder}'.",
                hint=_LAYOUT,
                file=str(self.root / folder),
            )
        return names

    def _holds_folders(self, name: str) -> bool:
        with os.scandir(self.root / name) as entries:
            return any(entry.is_dir() for entry in entries if not entry.name.startswith("."))

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a folder by name, except hidden ones; links out of the tree become bad."""
        try:
            with os.scandir(self.root / folder) as entries:
                visible = [
                    entry for entry in entries if not entry.name.startswith(".") and entry.name not in _LITTER
                ]
        except OSError as error:
            raise unreadable(str(self.root / folder), error) from error
        for entry in sorted(visible, key=lambda entry: entry.name):
            if why := path_problem(self.root, folder / entry.name, link=entry.is_symlink()):
                self._note(folder / entry.name, why)
            else:
                yield entry

    def _note(self, path: Path, why: str, hint: str = "") -> None:
        encoding = "ascii" if _not_text(str(path)) else "utf-8"
        name = path.as_posix().encode(encoding, "backslashreplace").decode()
        self.bad.append(BadRecord(name, why, hint=hint))


def path_problem(root: Path, path: Path, *, link: bool) -> str:
    """Return why a path below `root` cannot be followed, to complete a sentence; empty if it can."""
    if not link:
        return _not_text(path.name)
    try:
        target = (root / path).resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop, before Python 3.13
        return _not_text(path.name) or "is a link that leads nowhere"
    if not target.is_relative_to(root.resolve()):
        return _not_text(path.name) or f"is a link that leaves the source, to '{target}'"
    return _not_text(path.name)


def _not_text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return ""


def _misplaced(path: Path, problem: str) -> UsageError:
    return UsageError(f"'{path}' {problem}.", hint=_LAYOUT, file=str(path))
