"""The listing of a tree with one folder for each class, and perhaps train/ and test/ above; opens no file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tpuctl.errors import UsageError

SPLIT_FOLDERS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
"""Names of split folders, in lower case, and the TFDS names of their splits."""

_LITTER = ("Thumbs.db", "desktop.ini")
_LAYOUT = "One folder for each class, with its images in it: SOURCE/cat/1.png; or SOURCE/train/cat/1.png."


class Leaf(NamedTuple):
    """One file of a class."""

    key: str
    """Path below the root, with `/`."""
    split: str
    label: str


@dataclass(frozen=True)
class Tree:
    """A listed tree: its classes over all splits, sorted, and its files in the order of their keys."""

    classes: tuple[str, ...]
    leaves: tuple[Leaf, ...]


def list_tree(root: Path) -> Tree:
    """Return the classes and files below `root`; raises UsageError that names what does not belong there."""
    leaves = sorted(
        leaf for split, top in _split_folders(root) for leaf in _class_folders(root, Path(top), split)
    )
    classes = sorted({leaf.label for leaf in leaves})
    return Tree(tuple(classes), tuple(leaves))


def _split_folders(root: Path) -> list[tuple[str, str]]:
    """Return (split, path below the root) of each split folder, or the root alone, which is in no split."""
    folders = _only_folders(root, Path())
    named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
    if named != folders and not any(_holds_folders(root, name) for name in named):
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


def _class_folders(root: Path, top: Path, split: str) -> Iterator[Leaf]:
    for name in _only_folders(root, top):
        _check_class_name(top / name, name)
        files = _list(root, top / name)
        if not files:
            raise UsageError(
                f"The class folder '{top / name}' is empty.",
                hint="Put its images there, or remove the folder.",
                file=str(top / name),
            )
        for file in files:
            if not (root / top / name / file).is_file():
                raise _misplaced(top / name / file, "lies inside a class folder and is not a file")
            yield Leaf((top / name / file).as_posix(), split, name)


def _only_folders(root: Path, folder: Path) -> list[str]:
    names = _list(root, folder)
    for name in names:
        if not (root / folder / name).is_dir():
            raise _misplaced(folder / name, "is in no class folder")
    if not names:
        raise UsageError(
            f"There are no class folders in '{root / folder}'.", hint=_LAYOUT, file=str(root / folder)
        )
    return names


def _holds_folders(root: Path, name: str) -> bool:
    return any((root / name / inner).is_dir() for inner in _list(root, Path(name)))


def _list(root: Path, folder: Path) -> list[str]:
    """Return the sorted names in a folder, without the hidden ones; each is checked to be safe to follow."""
    try:
        with os.scandir(root / folder) as found:
            shown = [one for one in found if not one.name.startswith(".") and one.name not in _LITTER]
    except OSError as error:
        raise UsageError(
            f"Cannot read the folder '{root / folder}': {error.strerror}.",
            hint="Check the path and its permissions.",
            file=str(root / folder),
        ) from error
    entries = sorted(shown, key=lambda entry: entry.name)
    for entry in entries:
        _check_readable_name(folder / entry.name)
        if entry.is_symlink():
            _check_link(root, folder / entry.name)
    return [entry.name for entry in entries]


def _check_link(root: Path, link: Path) -> None:
    try:
        target = (root / link).resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop, before Python 3.13
        raise UsageError(
            f"The link '{link}' leads nowhere.", hint="Remove it, or put the file there.", file=str(link)
        ) from error
    if not target.is_relative_to(root.resolve()):
        raise UsageError(
            f"The link '{link}' leaves the source, to '{target}'.",
            hint="Copy the file into the source, so that nothing is uploaded by accident.",
            file=str(link),
        )


def _check_readable_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The file name {str(path)!a} is not UTF-8.", hint="Rename it.", file=ascii(str(path))
        ) from error


def _check_class_name(folder: Path, name: str) -> None:
    # one name a line in TFDS's labels file, read back without the blanks at both ends
    if name != name.strip() or not name.isprintable():
        raise UsageError(
            f"The class folder {str(folder)!r} has blanks around its name, or characters that do not print.",
            hint="Rename it: class names are kept one a line.",
            file=str(folder),
        )


def _misplaced(path: Path, what: str) -> UsageError:
    return UsageError(f"'{path}' {what}.", hint=_LAYOUT, file=str(path))
