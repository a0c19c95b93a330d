"""Finds the file that annotations call by a name: below their folder, or in another of the source."""

from __future__ import annotations

from functools import cached_property, partial
from itertools import islice

from tpuctl.data.files.path_index import PathIndex
from tpuctl.data.files.source_files import SourceFiles, words

_MOST_NAMESAKES = 1000
"""Files that end a path alike and are looked through for one in a folder with a word of the annotations."""


class PicturesByName:
    """The files of some endings, by the last parts of their paths."""

    def __init__(self, files: SourceFiles, suffixes: tuple[str, ...]) -> None:
        self._files = files
        self._suffixes = suffixes
        self._indexes: dict[int, PathIndex] = {}
        """By how many parts of the paths: names have one part, or two."""
        self._nearest: dict[tuple[str, str], int | str] = {}
        """What was found for a name and a table where there are several files."""

    def find(self, name: str, table: str) -> int | str:
        """Return the number of the file with this name for annotations at `table`, or what is wrong with it.

        A path from the folder of `table` is the first choice, then a folder whose name occurs in that of
        `table`: `train2017/1.jpg` for `instances_train2017.json`.
        """
        is_picture = name.lower().endswith(self._suffixes)
        numbers = list(islice(self._index(name).find(_relative(name)), 2)) if is_picture else []
        if len(numbers) <= 1:
            return numbers[0] if numbers else f"is listed in '{table}', and is not there"
        if (name, table) not in self._nearest:
            self._nearest[name, table] = self._find_nearest(name, table)
        return self._nearest[name, table]

    def _find_nearest(self, name: str, table: str) -> int | str:
        folder = table.rpartition("/")[0]
        beside = f"{folder}/{name}" if folder else name
        number = self._paths.first(beside)
        if number is not None:
            return number
        numbers = list(islice(self._index(name).find(_relative(name)), _MOST_NAMESAKES + 1))
        if len(numbers) <= _MOST_NAMESAKES:
            named = [number for number in numbers if self._shares_words(number, table)]
            if len(named) == 1:
                return named[0]
        folders = ", ".join(f"'{self._files.name(number)}'" for number in numbers[:3])
        return f"is listed in '{table}', and there are {folders}"

    @cached_property
    def _paths(self) -> PathIndex:
        return PathIndex(len(self._files), self._files.name)

    def _index(self, name: str) -> PathIndex:
        """Return the index of as many parts of the paths as a name has."""
        parts = _relative(name).count("/") + 1
        if parts not in self._indexes:
            self._indexes[parts] = PathIndex(len(self._files), partial(self._last_parts, parts))
        return self._indexes[parts]

    def _last_parts(self, count: int, number: int) -> str:
        return "/".join(self._files.name(number).rsplit("/", count)[-count:])

    def _shares_words(self, number: int, table: str) -> bool:
        folders = self._files.name(number).split("/")[:-1]
        return bool({folder.lower() for folder in folders} & set(words(table)))


def _relative(name: str) -> str:
    return name.removeprefix("./")
