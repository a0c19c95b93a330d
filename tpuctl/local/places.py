"""Gives each path below a folder to one file, also where the disk takes two names for the same."""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

from tpuctl.local.object_names import UnsafeNameError

Fold = Callable[[str], str]
"""Returns what a disk compares of a name."""
_PROBE = "probe-\u00e9"


def fold_of(folder: Path) -> Fold:
    """Return how the disk of an empty folder compares names; a file is made there for a moment.

    The disk of macOS takes `A` for `a`, and `\u00e9` for `e` with an accent. Raises OSError, also where this
    Python writes no such names.
    """
    try:
        os.fsencode(_PROBE)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, "Python's file names are ASCII here: set PYTHONUTF8=1") from error
    probe = folder / _PROBE
    probe.touch()
    try:
        folds_case = os.path.lexists(folder / _PROBE.upper())
        folds_accents = os.path.lexists(folder / unicodedata.normalize("NFD", _PROBE))
    finally:
        probe.unlink()
    return lambda name: _folded(name, case=folds_case, accents=folds_accents)


def _folded(name: str, *, case: bool, accents: bool) -> str:
    name = unicodedata.normalize("NFC", name) if accents else name
    return name.casefold() if case else name


class Places:
    """The paths of a folder that are taken."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def take(self, parts: tuple[str, ...]) -> None:
        """Give a path to a file; raises UnsafeNameError if it, or a folder on the way, is another's."""
        path = self._fold("/".join(parts))
        steps = path.split("/")
        above = {"/".join(steps[:count]) for count in range(1, len(steps))}
        if path in self._files:
            raise UnsafeNameError("has the name of another file on this disk")
        if path in self._folders:
            raise UnsafeNameError("has the name of a folder")
        if not above.isdisjoint(self._files):
            raise UnsafeNameError("has the name of a file as that of its folder")
        self._files.add(path)
        self._folders |= above
