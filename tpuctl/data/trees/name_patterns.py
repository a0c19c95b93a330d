"""Offers some files of a folder as a tree: those whose names a pattern with *, ?, [] or {0..9} means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from itertools import product
from pathlib import Path
from typing import IO

from tpuctl.data.trees.tree import Entry, ListedFile, Ranges, Tree
from tpuctl.errors import UsageError

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
_WILD = re.compile(r"[*?\[]")
_MOST = 100_000
"""Names that braces may mean."""


class NamePattern:
    """The last part of a path, as shells and WebDataset write several names: `*.csv`, `a-{000..009}.tar`."""

    def __init__(self, text: str) -> None:
        """Raises UsageError for braces that mean more than a hundred thousand names."""
        self.text = text
        names = _expanded(text)
        self._names = frozenset(name for name in names if not _WILD.search(name))
        self._patterns = [re.compile(translate(name)) for name in names if _WILD.search(name)]

    def matches(self, name: str) -> bool:
        """Tell whether it means a file of this name."""
        return name in self._names or any(pattern.match(name) for pattern in self._patterns)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the names that it gives one by one and that are not there."""
        return sorted(self._names.difference(names))


def name_pattern(path: str) -> NamePattern | None:
    """Return the pattern in the last part of a path; None where it is a plain name."""
    text = path.rpartition("/")[2]
    braces = any(_RANGE.fullmatch(inner) or "," in inner for inner in _BRACES.findall(text))
    return NamePattern(text) if braces or _WILD.search(text) else None


class PatternTree:
    """The files directly in the root of another tree whose names a pattern means."""

    only = ""

    def __init__(self, tree: Tree, pattern: NamePattern) -> None:
        """Raises UsageError where there is none, or one that it gives by its name is missing."""
        self._tree = tree
        self._pattern = pattern
        names = [entry.name for entry in self.scan("")]
        if missing := pattern.missing(names):
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UsageError(
                f"'{pattern.text}' names '{missing[0]}'{others}, not in '{tree}'.",
                hint="Copy the missing files, or name those that are there.",
                source=str(self),
            )
        if not names:
            raise UsageError(
                f"There is no file '{pattern.text}' in '{tree}'.", hint="Check the pattern.", source=str(self)
            )

    @property
    def name(self) -> str:
        """As `Tree.name`."""
        return self._pattern.text

    @property
    def is_remote(self) -> bool:
        """As `Tree.is_remote`."""
        return self._tree.is_remote

    def __str__(self) -> str:
        return f"{self._tree}/{self._pattern.text}"

    def scan(self, folder: str) -> list[Entry]:
        """As `Tree.scan`."""
        entries = self._tree.scan(folder)
        return entries if folder else [entry for entry in entries if self._means(entry.name)]

    def look(self, path: str) -> Entry | None:
        """As `Tree.look`."""
        return self._tree.look(path) if self._means(path) else None

    def read(self, file: ListedFile) -> bytes:
        """As `Tree.read`."""
        return self._tree.read(file)

    def read_each(self, files: Sequence[ListedFile]) -> Iterator[bytes | OSError]:
        """As `Tree.read_each`."""
        return self._tree.read_each(files)

    def read_heads(self, files: Sequence[ListedFile], size: int) -> Iterator[bytes | OSError]:
        """As `Tree.read_heads`."""
        return self._tree.read_heads(files, size)

    def open(self, file: ListedFile) -> Ranges:
        """As `Tree.open`."""
        return self._tree.open(file)

    def stream(self, file: ListedFile) -> IO[bytes]:
        """As `Tree.stream`."""
        return self._tree.stream(file)

    def local_path(self, file: ListedFile) -> Path | None:
        """As `Tree.local_path`."""
        return self._tree.local_path(file)

    def check(self, file: ListedFile) -> None:
        """As `Tree.check`."""
        self._tree.check(file)

    def below(self, folder: str) -> Tree:
        """As `Tree.below`."""
        return self._tree.below(folder) if folder else self

    def again(self) -> PatternTree:
        """As `Tree.again`; raises UsageError where none is left."""
        return PatternTree(self._tree.again(), self._pattern)

    def settle(self, newest: int) -> None:
        """As `Tree.settle`."""
        self._tree.settle(newest)

    def _means(self, path: str) -> bool:
        return self._pattern.matches(path.partition("/")[0])


def _expanded(text: str) -> list[str]:
    """Return the names that braces mean: `{08..10}` are 08, 09 and 10, `{a,b}` are a and b."""
    parts: list[Sequence[str]] = []
    end, total = 0, 1
    for match in _BRACES.finditer(text):
        parts += [[text[end : match.start()]], _alternatives(match)]
        end, total = match.end(), total * len(parts[-1])
        if total > _MOST:
            raise _too_many(text)
    return ["".join(chosen) for chosen in product(*parts, [text[end:]])]


def _alternatives(match: re.Match[str]) -> Sequence[str]:
    inner = match[1]
    if numbers := _RANGE.fullmatch(inner):
        first, last = numbers.groups()
        step = 1 if int(first) <= int(last) else -1
        if abs(int(last) - int(first)) >= _MOST:
            raise _too_many(match.string)
        width = len(first) if first.startswith("0") or last.startswith("0") else 0
        return [str(number).zfill(width) for number in range(int(first), int(last) + step, step)]
    return inner.split(",") if "," in inner else [match[0]]


def _too_many(text: str) -> UsageError:
    return UsageError(f"'{text}' means more than {_MOST} files.", hint="Give their folder.", source=text)
