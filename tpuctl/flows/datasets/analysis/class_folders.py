"""Names a folder after each class: safe on a disk, and no two alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from tpuctl.data.schema.features import Feature, Label
from tpuctl.data.tfrecord.example_decoding import Values
from tpuctl.local.object_names import UnsafeNameError, local_parts

_UNSAFE = re.compile(r"[^\w. -]|^\.+|(?<![. ])[. ]+$")
_LONGEST = 50
"""Characters: of four bytes each they fit a file's name, with a number."""


class ClassFolders:
    """The folder of each class.

    Of names that are alike, but for case or characters that a folder cannot have, the later has its number.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._labels = [name for name, feature in features.items() if isinstance(feature, Label)]
        self._names: dict[tuple[str, int], str] = {}
        self._taken: set[str] = set()
        for field, feature in features.items():
            for number, name in enumerate(feature.classes if isinstance(feature, Label) else ()):
                self._names[field, number] = self._free(_safe(name), number)

    def parts(self, values: Mapping[str, Values]) -> tuple[str, ...]:
        """Return the folder of a record's class; nothing without one."""
        for field in self._labels:
            number = next(iter(values.get(field, [])), None)
            if isinstance(number, int):
                if (field, number) not in self._names:
                    self._names[field, number] = self._free("", number)
                return (self._names[field, number],)
        return ()

    def _free(self, name: str, number: int) -> str:
        name = name or f"{number}"
        while _folded(name) in self._taken:
            name = f"{name}-{number}"
        self._taken.add(_folded(name))
        return name


def _safe(name: str) -> str:
    """Return a class's name as that of a folder, empty if it cannot be."""
    name = _UNSAFE.sub("_", name[:_LONGEST])
    try:
        return "/".join(local_parts(name))
    except UnsafeNameError:
        return ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
