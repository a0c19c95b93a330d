"""Collects the values of a label column in one pass, and numbers the classes."""

from __future__ import annotations

import re
import shlex
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tpuctl.errors import UsageError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Texts, in small letters, of cells that have no value."""
MOST_LABELS = 1 << 23
"""Records whose labels are held, 4 bytes each: up to so many, a drawn split keeps the share of each class."""
MOST_CLASSES = 1_000_000
"""Classes of a dataset whose files name them."""
_MOST, _MOST_CHARACTERS = 100_000, 64 << 20
"""Different values of a label, and their characters or bytes together: all are held."""
_NUMBERED = 1000
"""Whole numbers from 0 to below this are the numbers of their classes, even if some of them never occur."""

_WHOLE = re.compile(r"-?\d{1,18}(\.0*)?")
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def learn_numbers(label: str) -> str:
    """Return the hint for a label column whose values are no classes."""
    name = shlex.quote(label)
    return f"To learn numbers, give its type: --label {name} --type {name}=float."


@dataclass(frozen=True)
class Classes:
    """The classes of a label column."""

    names: tuple[str, ...]
    numbers: dict[Hashable, int]
    """Value in the source -> index of its class; missing values have none."""
    labels: NDArray[np.int32] | None
    """Class of each record, -1 for none; None where they are too many to hold."""
    fractions: bool
    """Whether it holds numbers that are not whole, and so no classes."""
    several: bool = False
    """Whether a record has a list of classes."""

    def called(self, names: tuple[str, ...]) -> Classes:
        """Return the classes with these names, which the values number from 0."""
        values = [int(name) if _WHOLE.fullmatch(name) else -1 for name in self.names]
        numbers = {value: values[place] for value, place in self.numbers.items()}
        known = {value: number for value, number in numbers.items() if 0 <= number < len(names)}
        labels = None
        if self.labels is not None:
            wide = np.array([*values, -1], np.int64)[self.labels]
            labels = np.where((wide >= 0) & (wide < len(names)), wide, -1).astype(np.int32)
        return Classes(names, known, labels, False, self.several)


@dataclass
class ClassCollector:
    """Collects the values of a label column in one pass."""

    column: str
    _keys: dict[Hashable, int] = field(default_factory=dict)
    _labels: array[int] = field(default_factory=lambda: array("i"))
    _records: int = 0
    _characters: int = 0
    _counted: int = 0
    _several: bool = False

    def add(self, values: Iterable[object]) -> None:
        """Add the values of the next records, or lists of them, None for a missing one; raises UsageError."""
        keys = self._keys
        labels = []
        for value in values:
            if isinstance(value, list):
                self._several = True
                for item in value:
                    keys.setdefault(_hashable(item), len(keys))
            labels.append(0 if isinstance(value, list) else keys.setdefault(_hashable(value), len(keys)))
        self._add(np.array(labels, np.int32))

    def add_ranked(self, values: Iterable[Hashable], ranks: NDArray[np.int64]) -> None:
        """Add the same by the different values, and which of them each of the records has."""
        keys = self._keys
        self._add(np.array([keys.setdefault(value, len(keys)) for value in values], np.int32)[ranks])

    def _add(self, labels: NDArray[np.int32]) -> None:
        self._records += len(labels)
        if self._records <= MOST_LABELS:
            self._labels.frombytes(labels.tobytes())
        keys = self._keys
        new = islice(reversed(keys), len(keys) - self._counted)
        self._characters += sum(len(value) for value in new if isinstance(value, str | bytes))
        self._counted = len(keys)
        if self._characters > _MOST_CHARACTERS:
            raise UsageError(
                f"The column '{self.column}' has different values of more than {_MOST_CHARACTERS} characters"
                ": they are no classes.",
                hint=f"Give it a type: --type {shlex.quote(self.column)}=text.",
                column=self.column,
            )
        if len(keys) > _MOST:
            raise UsageError(
                f"The column '{self.column}' has more than {_MOST} different values: they are no classes.",
                hint=f"Give it a type: --type {shlex.quote(self.column)}=text.",
                column=self.column,
            )

    def finish(self) -> Classes:
        """Return the classes, in the order of numbers if all are numbers, else of the alphabet."""
        names = {value: name for value in self._keys if (name := _name(value)) is not None}
        ordered = sorted(set(names.values()))
        fractions = any(not _WHOLE.fullmatch(name) for name in ordered) and all(map(_REAL.fullmatch, ordered))
        if ordered and all(map(_WHOLE.fullmatch, ordered)):
            ordered = _numbered({int(float(name)) if "." in name else int(name) for name in ordered})
            names = {value: str(int(name.partition(".")[0])) for value, name in names.items()}
        places = {name: place for place, name in enumerate(ordered)}
        numbers = {value: places[name] for value, name in names.items()}
        labels = None if self._several else self._class_of_each(numbers)
        return Classes(tuple(ordered), numbers, labels, fractions, self._several)

    def _class_of_each(self, numbers: dict[Hashable, int]) -> NDArray[np.int32] | None:
        if self._records > MOST_LABELS:
            return None
        final = np.array([numbers.get(value, -1) for value in self._keys], np.int32)
        return final[np.frombuffer(self._labels, np.int32)] if self._records else np.empty(0, np.int32)


def _hashable(value: object) -> Hashable:
    return value if isinstance(value, Hashable) else None


def _name(value: Hashable) -> str | None:
    """Return the name of the class of a value; None for a missing one."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return None if value != value else str(int(value)) if value.is_integer() else repr(value)
    text = " ".join(str(value).split())  # one name a line in the labels file
    return None if text.lower() in MISSING else text


def _numbered(numbers: set[int]) -> list[str]:
    most = max(numbers)
    if min(numbers) >= 0 and (most < _NUMBERED or most + 1 == len(numbers)):
        return [str(number) for number in range(most + 1)]
    return [str(number) for number in sorted(numbers)]
