"""Encodes many tf.train.Examples a column at a time, in the bytes that `Encoder` writes for each.

All records of a table have the same fields. What stands before a value depends on the value's size alone:
a few heads serve all rows, and sums of sizes say where each part goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.features import Kind
from tpuctl.data.tfrecord.example_encoding import FieldHeads, Value, entry_of, record_head, varint
from tpuctl.data.tfrecord.frames import Frames, fill_checksums
from tpuctl.data.tfrecord.framing import OVERHEAD, frame_head
from tpuctl.data.tfrecord.texts import Bytes, Places, Texts, distinct, windows

Values: TypeAlias = NDArray[np.int64] | NDArray[np.float32] | Texts | Sequence[Value]
"""A field of many records: a number or a text each, or any values, which are encoded one by one."""


class ColumnEncoder:
    """Frames records that all have the same fields."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        """`kinds` names the fields in the order in which `frames` gets their values."""
        order = sorted(enumerate(kinds.items()), key=lambda numbered: numbered[1][0])
        self._fields = [(place, _Field(name, kind)) for place, (name, kind) in order]

    def frames(self, columns: Sequence[Values]) -> Frames:
        """Return the framed Examples of records, from the values that each field has in all of them."""
        parts = [part for place, field in self._fields for part in field.parts(columns[place])]
        features = np.zeros(_count(columns[0]), np.int64)
        for part in parts:
            features += part.sizes
        outer = _Heads(features, record_head)
        sizes = features + outer.sizes
        ends = np.cumsum(sizes + OVERHEAD)
        data = np.empty(int(ends[-1]), np.uint8)
        places = ends - sizes - OVERHEAD
        for part in (_Heads(sizes, frame_head), outer, *parts):
            part.write(data, places)
            places = places + part.sizes
        return fill_checksums(data, ends)


class _Field:
    """One field: the parts of its entry in the map of features."""

    def __init__(self, name: str, kind: Kind) -> None:
        self._head_of = FieldHeads(name, kind).__getitem__
        self._name, self._kind = name, kind

    @cached_property
    def _entry(self) -> Callable[[Any], bytes]:
        return entry_of(self._name, self._kind)

    def parts(self, values: Values) -> tuple[_Part, ...]:
        if isinstance(values, Texts):
            return _Heads(values.sizes, self._head_of), _Content(values)
        if not isinstance(values, np.ndarray):
            return (_Content(Texts.of([self._entry(value) for value in values])),)
        if values.dtype == np.float32:
            return _Constant(self._head_of(4)), _Fixed(values.astype("<f4").view("V4"))
        numbers = _Varints.of(values.astype(np.int64))
        return _Heads(numbers.sizes, self._head_of), numbers


class _Heads:
    """Bytes that depend on a size: of the few different sizes, each is computed once."""

    def __init__(self, sizes: Places, bytes_of: Callable[[int], bytes]) -> None:
        numbers, self._rank = distinct(sizes)
        self._texts = [bytes_of(number) for number in numbers]
        self._lengths = np.array([len(text) for text in self._texts], np.int64)
        self._lengths_differ = len(set(self._lengths.tolist())) > 1
        self.sizes: Places | int = (
            self._lengths[self._rank] if self._lengths_differ else int(self._lengths[0])
        )

    def write(self, data: Bytes, places: Places) -> None:
        for length in set(self._lengths.tolist()):
            padded = b"".join(text[:length].ljust(length, b"\0") for text in self._texts)
            table = np.frombuffer(padded, f"V{length}")
            if self._lengths_differ:
                rows = np.flatnonzero(self.sizes == length)
                windows(data, length)[places[rows]] = table[self._rank[rows]]
            else:
                windows(data, length)[places] = table[self._rank] if len(table) > 1 else table[0]


@dataclass(frozen=True)
class _Constant:
    """The same bytes in each record."""

    text: bytes

    @property
    def sizes(self) -> int:
        return len(self.text)

    def write(self, data: Bytes, places: Places) -> None:
        windows(data, self.sizes)[places] = np.void(self.text)


@dataclass(frozen=True)
class _Fixed:
    """Bytes that differ, but not in their number."""

    values: NDArray[np.void]

    @property
    def sizes(self) -> int:
        return self.values.itemsize

    def write(self, data: Bytes, places: Places) -> None:
        windows(data, self.sizes)[places] = self.values


@dataclass(frozen=True)
class _Content:
    texts: Texts

    @property
    def sizes(self) -> Places:
        return self.texts.sizes

    def write(self, data: Bytes, places: Places) -> None:
        self.texts.copy_to(data, places)


@dataclass(frozen=True)
class _Varints:
    values: NDArray[np.uint64]
    sizes: Places

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> _Varints:
        wide = values.view(np.uint64)
        longest = len(varint(int(wide.max(initial=0))))
        sizes = np.ones(len(wide), np.int64)
        for length in range(1, longest):
            sizes += wide >= np.uint64(1 << 7 * length)
        return cls(wide, sizes)

    def write(self, data: Bytes, places: Places) -> None:
        for length in np.flatnonzero(np.bincount(self.sizes)).tolist():
            rows = np.flatnonzero(self.sizes == length)
            shifts = np.arange(0, 7 * length, 7, dtype=np.uint64)
            groups = (self.values[rows, None] >> shifts & np.uint64(127)).astype(np.uint8)
            groups[:, :-1] |= 128
            windows(data, length)[places[rows]] = groups.view(f"V{length}")[:, 0]


_Part: TypeAlias = _Heads | _Constant | _Fixed | _Content | _Varints


def _count(values: Values) -> int:
    return len(values.sizes) if isinstance(values, Texts) else len(values)
