"""Lists the files of a source of one kind, each in its split; opens none."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from tpuctl.data.files.listing import SPLIT_FOLDERS, Folder, Listing, printable, unreadable
from tpuctl.data.options import BadRecord
from tpuctl.data.source import Indices
from tpuctl.data.trees.tree import Entry, Ranges, RangeStream, Tree
from tpuctl.errors import UsageError

SPLIT_WORDS = {**SPLIT_FOLDERS, "valid": "validation", "dev": "validation", "t10k": "test"}
"""Words in the name of a file or an array -> the split they mean: `train.csv`, `x_test`, `t10k-images`."""

_InSplit = tuple[str, str, Entry]
"""Split, path of the folder, and file."""
_SHOWN = ("_annotations.coco.json",)
"""Files that are read although their names begin with `_`: Roboflow's annotations."""
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class SourceFiles:
    """Files in the order of split and path; those of one split follow one another."""

    tree: Tree
    again: Callable[[], SourceFiles]
    """Lists them once more."""
    listing: Listing
    bad: tuple[BadRecord, ...]

    def __len__(self) -> int:
        return len(self.listing)

    def name(self, number: int) -> str:
        """Return a file's path below the source, with `/`; the name of the source where that is one file."""
        return self.listing.key(number)

    def split(self, number: int) -> str:
        """Return the split that a file belongs to; empty if its name says none."""
        return self.listing.folders[self.listing.folder_of(number)].split

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return int(self.listing.sizes.sum())

    def open(self, number: int) -> Ranges:
        """Open a file to read it at any place; raises UsageError."""
        try:
            return self.tree.open(self.listing.file(number))
        except OSError as error:
            raise unreadable(self.name(number), error) from error

    def stream(self, number: int) -> IO[bytes]:
        """Open a file to read it from its beginning on; raises OSError."""
        return self.tree.stream(self.listing.file(number))

    def by_path_or_stream(self, number: int) -> Path | RangeStream:
        """Return where a file lies on this disk, else a stream of it, for libraries that take both."""
        file = self.listing.file(number)
        return self.tree.local_path(file) or RangeStream(self.open(number), file.size)

    def unchanged(self, number: int) -> None:
        """Raise UsageError (`changed`) if a file was removed or modified since the listing."""
        self.tree.check(self.listing.file(number))

    def check(self) -> None:
        """Raise UsageError (`changed`) if a file is new, removed or modified since the listing."""
        self.listing.check(self.again().listing)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the names and sizes, in order."""
        return self.listing.fingerprint

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that differ when any of the files was written to, whichever records are meant."""
        return self.fingerprint.encode() + self.listing.stamps.tobytes()


def list_files(tree: Tree, pattern: re.Pattern[str]) -> SourceFiles:
    """Return the only file of a tree, or all whose names, in small letters, match `pattern`.

    The name of a folder or file says the split: `train/1.csv`, `test.csv`. Raises UsageError where there are
    no files, or only some of them name a split.
    """
    again = partial(_again, tree, pattern)
    bad: list[BadRecord] = []
    if tree.only:
        return SourceFiles(tree, again, _listing(tree, [("", "", _entry(tree, tree.only))]), ())
    files = [
        (split_of(_path(folder, entry)), folder, entry)
        for folder, entry in _below(tree, "", bad)
        if pattern.search(_path(folder, entry).lower())
    ]
    if not files:
        raise UsageError(
            f"There is no file of this format in '{tree}'.",
            hint="Check the path, and the names' endings.",
            file=str(tree),
        )
    files.sort(key=lambda file: (file[0], _path(*file[1:])))
    _check_splits(files)
    return SourceFiles(tree, again, _listing(tree, files), tuple(bad))


def every_file(tree: Tree, pattern: re.Pattern[str]) -> SourceFiles:
    """Return all files whose names, in small letters, match `pattern`, by path and in no split."""
    bad: list[BadRecord] = []
    files = (
        ("", folder, entry)
        for folder, entry in _below(tree, "", bad)
        if pattern.search(_path(folder, entry).lower())
    )
    listing = _listing(tree, files).by_folder()
    return SourceFiles(tree, lambda: every_file(tree.again(), pattern), listing, tuple(bad))


def chosen_files(tree: Tree, chosen: Sequence[tuple[str, str]]) -> SourceFiles:
    """Return files by split and name; raises UsageError for one missing, or a link that leaves the tree."""
    files = []
    for split, name in chosen:
        entry = _entry(tree, name)
        if entry.problem:
            raise UsageError(f"'{name}' {entry.problem}.", hint="Copy the file into the source.", file=name)
        files.append((split, name.rpartition("/")[0], entry))
    return SourceFiles(tree, lambda: chosen_files(tree.again(), chosen), _listing(tree, files), ())


def _again(tree: Tree, pattern: re.Pattern[str]) -> SourceFiles:
    return list_files(tree.again(), pattern)


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


def _below(tree: Tree, folder: str, bad: list[BadRecord]) -> Iterator[tuple[str, Entry]]:
    """Yield every file below a folder, each with the path of its folder."""
    try:
        entries = [
            entry for entry in tree.scan(folder) if not entry.name.startswith("_") or entry.name in _SHOWN
        ]
    except OSError as error:
        raise unreadable(folder or str(tree), error) from error
    for entry in entries:
        name = _path(folder, entry)
        if entry.problem:
            bad.append(BadRecord(printable(name), entry.problem))
        elif entry.kind == "folder":
            yield from _below(tree, name, bad)
        elif entry.kind == "file":
            yield folder, entry


def _check_splits(files: list[_InSplit]) -> None:
    splits = {split for split, _, _ in files}
    if "" in splits and len(splits) > 1:
        first = _path(*files[0][1:])
        raise UsageError(
            f"'{first}' is in no split, and '{_path(*files[-1][1:])}' is in the split '{files[-1][0]}'.",
            hint="Name all files after their split, such as train-2.csv and test.csv, or none.",
            file=first,
        )


def _listing(tree: Tree, files: Iterable[_InSplit]) -> Listing:
    listing = Listing(tree)
    current: Folder | None = None
    for split, folder, entry in files:
        if current is None or (current.path, current.split) != (folder, split):
            current = Folder(folder, split, "")
            listing.start(current)
        listing.add(entry)
    listing.wait_past_newest()
    return listing


def _entry(tree: Tree, path: str) -> Entry:
    try:
        entry = tree.look(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except OSError as error:
        raise unreadable(path.rpartition("/")[2], error) from error
    if entry.problem:
        hint = "Save what it holds as a file, and give that."
        raise UsageError(f"'{entry.name}' {entry.problem}.", hint=hint, file=entry.name)
    return entry


def _path(folder: str, entry: Entry) -> str:
    return f"{folder}/{entry.name}" if folder else entry.name
