"""Finds the file that annotations call by a name: below their folder, or in another of the source."""

from __future__ import annotations

from tpuctl.data.files.path_index import PathIndex
from tpuctl.data.files.source_files import SourceFiles, words


class PicturesByName:
    """The files of some endings, by the last part of their paths."""

    def __init__(self, files: SourceFiles, suffixes: tuple[str, ...]) -> None:
        self._files = files
        self._suffixes = suffixes
        self._index = PathIndex(len(files), lambda number: _last_part(files.name(number)))

    def find(self, name: str, table: str) -> int | str:
        """Return the number of the file with this name for annotations at `table`, or what is wrong with it.

        A path from the folder of `table` is the first choice, then a folder whose name occurs in that of
        `table`: `train2017/1.jpg` for `instances_train2017.json`.
        """
        numbers = [
            number
            for number in self._index.find(_last_part(name))
            if f"/{self._files.name(number)}".endswith(f"/{name.removeprefix('./')}")
            and name.lower().endswith(self._suffixes)
        ]
        if len(numbers) <= 1:
            return numbers[0] if numbers else f"is listed in '{table}', and is not there"
        folder = table.rpartition("/")[0]
        beside = f"{folder}/{name}" if folder else name
        for number in numbers:
            if self._files.name(number) == beside:
                return number
        named = [number for number in numbers if self._shares_words(number, table)]
        if len(named) == 1:
            return named[0]
        folders = ", ".join(f"'{self._files.name(number)}'" for number in numbers[:3])
        return f"is listed in '{table}', and there are {folders}"

    def _shares_words(self, number: int, table: str) -> bool:
        folders = self._files.name(number).split("/")[:-1]
        return bool({folder.lower() for folder in folders} & set(words(table)))


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]
