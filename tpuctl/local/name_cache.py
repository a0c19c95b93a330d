"""Keeps names of nodes, runs and datasets for a few minutes, for the completion in a shell.

Names from a bucket are hostile input, and a shell shows and inserts what it is offered: only names of plain
letters, digits and `._/-` are kept. The file is in a folder of its user alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tpuctl.atomic_files import replace_file
from tpuctl.local.private_folder import FILE_MODE, make_private_folder, read_own_file

FRESH = 300
"""Seconds for which names are offered."""
MOST_NAMES = 500
_LARGEST = 1 << 18
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")

Entries = dict[str, tuple[float, list[str]]]
"""Under each scope, when its names were listed, and the names."""


class NameCache:
    """The names of several kinds in one file; whatever is wrong with the file, it is empty."""

    def __init__(self, path: Path, scope: Callable[[str], str] = str) -> None:
        """`scope` returns the key of a kind in the file."""
        self._path = path
        self._key = scope

    def names(self, kind: str) -> list[str]:
        """Return the names that were listed in the last minutes; no network, and nothing is written."""
        listed, names = self._read().get(self._key(kind), (0.0, []))
        return names if 0 <= time.time() - listed < FRESH else []

    def replace(self, kind: str, names: Iterable[str]) -> None:
        """Take the complete list of a kind; a folder that cannot be written is left as it is."""
        fresh = {key: entry for key, entry in self._read().items() if time.time() - entry[0] < FRESH}
        fresh[self._key(kind)] = (time.time(), list(dict.fromkeys(filter(_is_plain, names)))[-MOST_NAMES:])
        try:
            make_private_folder(self._path.parent)
            replace_file(self._path, [json.dumps(fresh).encode()], mode=FILE_MODE)
        except OSError:
            pass  # completion is a convenience: no command fails for it

    def add(self, kind: str, name: str) -> None:
        """Take a new name."""
        self.replace(kind, [*self.names(kind), name])

    def remove(self, kind: str, names: Iterable[str]) -> None:
        """Drop names that no longer exist."""
        dropped = set(names)
        self.replace(kind, [name for name in self.names(kind) if name not in dropped])

    def _read(self) -> Entries:
        try:
            content = json.loads(read_own_file(self._path, _LARGEST))
            return {scope: _entry(*entry) for scope, entry in content.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}


def _entry(listed: float, names: list[str]) -> tuple[float, list[str]]:
    return float(listed), [name for name in names if _is_plain(name)]


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and bool(_NAME.fullmatch(name))
