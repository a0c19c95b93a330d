"""Lists the files of a source of one kind, each in its split; opens none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.class_folders import SPLIT_FOLDERS, path_problem
from tpuctl.data.files.listing import Folder, Listing, modified, unreadable
from tpuctl.data.source import Indices, changed
from tpuctl.errors import UsageError

SPLIT_WORDS = {**SPLIT_FOLDERS, "valid": "validation", "dev": "validation", "t10k": "test"}
"""Words in the name of a file or an array -> the split they mean: `train.csv`, `x_test`, `t10k-images`."""

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
        """Return the path of a file."""
        return self.listing.root / self.name(number)

    def split(self, number: int) -> str:
        """Return the split that a file belongs to; empty if its name says none."""
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
        """Raise UsageError (`changed`) if a file was removed or modified since the listing."""
        try:
            status = self.path(number).stat()
        except OSError as error:
            raise changed(self.name(number), "was removed") from error
        listed = (self.listing.sizes[number], self.listing.times[number])
        if listed != (status.st_size, modified(status)):
            raise changed(self.name(number), "has changed")

    def check(self) -> None:
        """Raise UsageError (`changed`) if a file is new, removed or modified since the listing."""
        self.listing.check(self.again().listing)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the names and sizes, in order."""
        return self.listing.fingerprint

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that differ when any of the files was written to, whichever records are meant."""
        return self.fingerprint.encode() + self.listing.times.tobytes()


def list_files(root: Path, pattern: re.Pattern[str]) -> SourceFiles:
    """Return the file at `root`, or all below it whose names, in small letters, match `pattern`.

    The name of a folder or file says the split: `train/1.csv`, `test.csv`. Raises UsageError where there are
    no files, or only some of them name a split.
    """
    again = partial(list_files, root, pattern)
    if not root.is_dir():
        files = Listing(root.parent)
        files.start(Folder("", "", ""))
        files.add(root.name, _status(root))
        files.wait_past_newest()
        return SourceFiles(root, again, files, ())
    bad: list[BadRecord] = []
    names = sorted((split_of(name), name) for name in _below(root, "", bad) if pattern.search(name.lower()))
    if not names:
        raise UsageError(
            f"There is no file of this format in '{root}'.",
            hint="Check the path, and the names' endings.",
            file=str(root),
        )
    _check_splits(names)
    return SourceFiles(root, again, _listing(root, names), tuple(bad))


def chosen_files(root: Path, chosen: Sequence[tuple[str, str]]) -> SourceFiles:
    """Return files in `root` by split and name; raises UsageError for one missing, or a link that leaves."""
    for _, name in chosen:
        if why := path_problem(root, Path(name), link=(root / name).is_symlink()):
            raise UsageError(f"'{name}' {why}.", hint="Copy the file into the source.", file=name)
    return SourceFiles(root, partial(chosen_files, root, chosen), _listing(root, chosen), ())


def split_of(name: str) -> str:
    """Return the split that a path names: its innermost folder of such a name, else a word of the file's."""
    *folders, file = name.split("/")
    for folder in reversed(folders):
        if folder.lower() in SPLIT_WORDS:
            return SPLIT_WORDS[folder.lower()]
    splits = {SPLIT_WORDS[word] for word in words(file) if word in SPLIT_WORDS}
    return splits.pop() if len(splits) == 1 else ""


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters: `x_train.npy` has x, train and npy."""
    return [word for word in _BETWEEN_WORDS.split(name.lower()) if word]


def _below(root: Path, folder: str, bad: list[BadRecord]) -> Iterator[str]:
    try:
        with os.scandir(root / folder) as scanned:
            entries = sorted(
                (entry for entry in scanned if not entry.name.startswith((".", "_"))),
                key=lambda entry: entry.name,
            )
    except OSError as error:
        raise unreadable(folder or str(root), error) from error
    for entry in entries:
        name = f"{folder}/{entry.name}" if folder else entry.name
        if why := path_problem(root, Path(name), link=entry.is_symlink()):
            bad.append(BadRecord(name.encode("utf-8", "backslashreplace").decode(), why))
        elif entry.is_dir():
            yield from _below(root, name, bad)
        elif entry.is_file():
            yield name


def _check_splits(names: list[tuple[str, str]]) -> None:
    splits = {split for split, _ in names}
    if "" in splits and len(splits) > 1:
        raise UsageError(
            f"'{names[0][1]}' is in no split, and '{names[-1][1]}' is in the split '{names[-1][0]}'.",
            hint="Name all files after their split, such as train-2.csv and test.csv, or none.",
            file=names[0][1],
        )


def _listing(root: Path, names: Sequence[tuple[str, str]]) -> Listing:
    files = Listing(root)
    current: Folder | None = None
    for split, name in names:
        folder, _, file = name.rpartition("/")
        if current is None or (current.path, current.split) != (folder, split):
            current = Folder(folder, split, "")
            files.start(current)
        files.add(file, _status(root / name))
    files.wait_past_newest()
    return files


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise unreadable(path.name, error) from error
