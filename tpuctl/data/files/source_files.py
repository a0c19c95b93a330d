"""The files of a source that is one file, or a folder of files of one kind: each in its split; opens none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.class_folders import SPLIT_FOLDERS, astray
from tpuctl.data.files.listing import Folder, Listing, unreadable
from tpuctl.data.source import changed
from tpuctl.errors import UsageError

SPLIT_WORDS = {**SPLIT_FOLDERS, "valid": "validation", "dev": "validation", "t10k": "test"}
"""Words that tell the split in the name of a file or an array: `train.csv`, `x_test`, `t10k-images`."""

_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class SourceFiles:
    """Files in the order of split and path; those of one split follow one another."""

    root: Path
    again: Callable[[], SourceFiles]
    """Lists them once more."""
    listing: Listing
    bad: tuple[BadRecord, ...]

    def __len__(self) -> int:
        return len(self.listing)

    def name(self, number: int) -> str:
        """Return a file's path below the source, with `/`; the name of the source where that is one file."""
        return self.listing.key(number)

    def path(self, number: int) -> Path:
        """Return where a file lies."""
        return self.listing.root / self.name(number)

    def split(self, number: int) -> str:
        """Return the split that a file belongs to; empty where none is said."""
        return self.listing.folders[self.listing.folder_of(number)].split

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return int(self.listing.sizes.sum())

    def open(self, number: int) -> int:
        """Return a descriptor to read a file; raises UsageError."""
        try:
            return os.open(self.path(number), os.O_RDONLY)
        except OSError as error:
            raise unreadable(self.name(number), error) from error

    def unchanged(self, number: int) -> None:
        """Raise UsageError (`changed`) if a file is not what it was when it was listed."""
        try:
            status = self.path(number).stat()
        except OSError as error:
            raise changed(self.name(number), "has gone") from error
        known = (self.listing.sizes[number], self.listing.times[number])
        if known != (status.st_size, max(status.st_mtime_ns, status.st_ctime_ns)):
            raise changed(self.name(number), "has changed")

    def check(self) -> None:
        """Raise UsageError (`changed`) if any file came, went or was written to."""
        self.listing.check(self.again().listing)

    @property
    def stamp(self) -> bytes:
        """Bytes that differ when any of the files was written to."""
        return self.listing.fingerprint.encode() + self.listing.times.tobytes()


def list_files(root: Path, wanted: re.Pattern[str]) -> SourceFiles:
    """Return the file at `root`, or all below it in whose names, in small letters, `wanted` is found.

    A folder's or file's name tells the split: `train/1.csv`, `test.csv`. Raises UsageError where there are no
    files, or only some of them tell.
    """
    again = partial(list_files, root, wanted)
    if not root.is_dir():
        files = Listing(root.parent)
        files.start(Folder("", "", ""))
        files.add(root.name, _status(root))
        files.settle()
        return SourceFiles(root, again, files, ())
    bad: list[BadRecord] = []
    found = sorted((split_of(name), name) for name in _below(root, "", bad) if wanted.search(name.lower()))
    if not found:
        raise UsageError(
            f"There is no file of this format in '{root}'.",
            hint="Check the path, and the names' endings.",
            file=str(root),
        )
    _check_splits(found)
    return SourceFiles(root, again, _listing(root, found), tuple(bad))


def chosen_files(root: Path, chosen: Sequence[tuple[str, str]]) -> SourceFiles:
    """Return files in `root` by split and name; raises UsageError for one missing, or a link that leaves."""
    for _, name in chosen:
        if why := astray(root, Path(name), link=(root / name).is_symlink()):
            raise UsageError(f"'{name}' {why}.", hint="Copy the file into the source.", file=name)
    return SourceFiles(root, partial(chosen_files, root, chosen), _listing(root, chosen), ())


def split_of(name: str) -> str:
    """Return the split that a path tells: its innermost folder of such a name, else a word of the file's."""
    *folders, file = name.split("/")
    for folder in reversed(folders):
        if folder.lower() in SPLIT_WORDS:
            return SPLIT_WORDS[folder.lower()]
    told = {SPLIT_WORDS[word] for word in words(file) if word in SPLIT_WORDS}
    return told.pop() if len(told) == 1 else ""


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters: `x_train.npy` has x, train and npy."""
    return [word for word in _BETWEEN_WORDS.split(name.lower()) if word]


def _below(root: Path, folder: str, bad: list[BadRecord]) -> Iterator[str]:
    try:
        with os.scandir(root / folder) as found:
            entries = sorted(
                (one for one in found if not one.name.startswith((".", "_"))), key=lambda one: one.name
            )
    except OSError as error:
        raise unreadable(folder or str(root), error) from error
    for entry in entries:
        name = f"{folder}/{entry.name}" if folder else entry.name
        if why := astray(root, Path(name), link=entry.is_symlink()):
            bad.append(BadRecord(name.encode("utf-8", "backslashreplace").decode(), why))
        elif entry.is_dir():
            yield from _below(root, name, bad)
        elif entry.is_file():
            yield name


def _check_splits(found: list[tuple[str, str]]) -> None:
    splits = {split for split, _ in found}
    if "" in splits and len(splits) > 1:
        raise UsageError(
            f"'{found[0][1]}' is in no split, and '{found[-1][1]}' is in the split '{found[-1][0]}'.",
            hint="Call all files after their split, such as train-2.csv and test.csv, or none.",
            file=found[0][1],
        )


def _listing(root: Path, found: Sequence[tuple[str, str]]) -> Listing:
    files = Listing(root)
    current: Folder | None = None
    for split, name in found:
        folder, _, file = name.rpartition("/")
        if current is None or (current.path, current.split) != (folder, split):
            current = Folder(folder, split, "")
            files.start(current)
        files.add(file, _status(root / name))
    files.settle()
    return files


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise unreadable(path.name, error) from error
