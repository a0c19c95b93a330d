"""The classes of a label column: every value it holds, gathered in one pass, and the number each one gets."""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpuctl.errors import UsageError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Texts, in small letters, that say there is no value, where one is wanted."""
MOST_LABELS = 1 << 23
"""Records whose labels are held, 4 bytes each: up to so many, a drawn split keeps the share of each class."""
_MOST = 100_000
_NUMBERED = 1000
"""Whole numbers from 0 to below this are the numbers of their classes, even if some of them never occur."""

_WHOLE = re.compile(r"-?\d{1,18}(\.0*)?")
_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Classes:
    """What a label column holds."""

    names: tuple[str, ...]
    numbers: dict[Any, int]
    """Value as it stands in the source -> index of its class; a missing value is not there."""
    labels: NDArray[np.int32] | None
    """Class of each record, -1 for none; None where they are too many to hold."""
    fractions: bool
    """Whether it holds numbers that are not whole, and so no classes."""


@dataclass
class ClassCollector:
    """The pass over all values."""

    column: str
    _seen: dict[Hashable, int] = field(default_factory=dict)
    _each: array[int] = field(default_factory=lambda: array("i"))
    _records: int = 0

    def add(self, values: Iterable[Any]) -> None:
        """Take the values of some more records, None where there is none; raises UsageError for too many."""
        seen = self._seen
        some = [seen.setdefault(_hashable(value), len(seen)) for value in values]
        self._records += len(some)
        if self._records <= MOST_LABELS:
            self._each.extend(some)
        if len(seen) > _MOST:
            raise UsageError(
                f"The column '{self.column}' has more than {_MOST} different values: they are no classes.",
                hint=f"Give it a type: --type {self.column}=text.",
                column=self.column,
            )

    def finish(self) -> Classes:
        """Return the classes, in the order of numbers where all are, else of the alphabet."""
        keys = {value: key for value in self._seen if (key := _key(value)) is not None}
        names = sorted(set(keys.values()))
        fractions = any(not _WHOLE.fullmatch(one) for one in names) and all(map(_REAL.fullmatch, names))
        if names and all(map(_WHOLE.fullmatch, names)):
            names = _numbered({int(float(one)) if "." in one else int(one) for one in names})
            keys = {value: str(int(key.partition(".")[0])) for value, key in keys.items()}
        places = {name: place for place, name in enumerate(names)}
        numbers = {value: places[key] for value, key in keys.items()}
        return Classes(tuple(names), numbers, self._labels(numbers), fractions)

    def _labels(self, numbers: dict[Any, int]) -> NDArray[np.int32] | None:
        if self._records > MOST_LABELS:
            return None
        final = np.array([numbers.get(value, -1) for value in self._seen], np.int32)
        return final[np.frombuffer(self._each, np.int32)] if self._records else np.empty(0, np.int32)


def _hashable(value: Any) -> Hashable:
    return value if isinstance(value, Hashable) else None


def _key(value: Hashable) -> str | None:
    """Return the name of the class that a value stands for; None for a missing one."""
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
        return [str(one) for one in range(most + 1)]
    return [str(one) for one in sorted(numbers)]
