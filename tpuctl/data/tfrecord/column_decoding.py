"""Decodes many tf.train.Examples a column at a time, where each has one value of every field.

These are the records of a table as `ColumnEncoder` writes them: sorted by name, each entry with a head that
depends on the size of its value alone. Any other record is left to `example_decoding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.features import Kind
from tpuctl.data.tfrecord.example_encoding import FieldHeads
from tpuctl.data.tfrecord.texts import Bytes, Places, Texts

Column: TypeAlias = NDArray[np.int64] | NDArray[np.float32] | Texts
_LONGEST = 5
"""Bytes of a length: as many as that of the longest record needs."""
_MARGIN = 16


class Columns:
    """The values of some records, and where each field's entry is in their bytes."""

    def __init__(self, values: dict[str, Column], bounds: list[Places]) -> None:
        self.values = values
        """By name, in order."""
        self.bounds = bounds
        """Where the entry of each field begins, and at last where that of the last one ends."""


class ColumnDecoder:
    """Decodes records that all have the same fields."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._fields = [_Field(name, kinds[name]) for name in sorted(kinds)]

    def decode(self, data: bytes, begins: Places, ends: Places) -> Columns | None:
        """Return the values of records that are parts of some bytes; None if one is not as it is written."""
        buffer = np.frombuffer(data + bytes(_MARGIN), np.uint8)
        sizes, places = _lengths(buffer, begins)
        if (buffer[begins] != 10).any() or (places + sizes != ends).any():
            return None
        values, bounds = dict[str, Column](), [places]
        for field in self._fields:
            found = field.decode(buffer, places, ends)
            if found is None:
                return None
            values[field.name], places = found
            bounds.append(places)
        return None if (places != ends).any() else Columns(values, bounds)


class _Field:
    """One field: the heads of its entries, by the size of what they hold."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name, self._kind = name, kind
        self._heads = FieldHeads(name, kind)
        self._sizes = dict[int, int]()
        """Length of an entry -> the size of its value, or -1 for a length that no entry has."""

    def decode(self, data: Bytes, places: Places, ends: Places) -> tuple[Column, Places] | None:
        """Return the values of the entries at these places, and where they end."""
        if (places >= ends).any() or (data[places] != 10).any():
            return None
        lengths, starts = _lengths(data, places)
        distinct, rank = np.unique(lengths, return_inverse=True)
        sizes = np.array([self._size(length) for length in distinct.tolist()], np.int64)
        after = starts + lengths
        if (sizes < 0).any() or (after > ends).any() or not self._has_heads(data, places, sizes, rank):
            return None
        values = self._values(data, after - sizes[rank], sizes[rank])
        return None if values is None else (values, after)

    def _size(self, length: int) -> int:
        """Return the size of the value in an entry of this length."""
        if length not in self._sizes:
            most = length - self._length(0)  # lengths of lengths take up to a few bytes of it
            near = range(max(0, most - 4 * _LONGEST), most + 1)
            fits = (size for size in near if self._length(size) == length)
            self._sizes[length] = next(fits, -1)
        return self._sizes[length]

    def _length(self, size: int) -> int:
        """Return what an entry says of its length whose value has this size."""
        head = self._heads[size]
        digits = next(place for place, byte in enumerate(head[1:], 1) if byte < 128)
        return len(head) - 1 - digits + size

    def _has_heads(self, data: Bytes, places: Places, sizes: Sequence[int] | Places, rank: Places) -> bool:
        heads = [self._heads[int(size)] for size in sizes]
        for length in {len(head) for head in heads}:
            padded = b"".join(head[:length].ljust(length, b"\0") for head in heads)
            table = np.frombuffer(padded, np.uint8).reshape(-1, length)
            fits = np.array([len(head) == length for head in heads])
            rows = np.flatnonzero(fits[rank])
            if (data[places[rows, None] + np.arange(length)] != table[rank[rows]]).any():
                return False
        return True

    def _values(self, data: Bytes, begins: Places, sizes: Places) -> Column | None:
        if self._kind == "bytes":
            return Texts(data, begins, sizes)
        if self._kind == "float":
            if (sizes != 4).any():
                return None
            return np.ascontiguousarray(data[begins[:, None] + np.arange(4)]).view("<f4")[:, 0]
        return _varints(data, begins, sizes)


def _lengths(data: Bytes, places: Places) -> tuple[Places, Places]:
    """Return the lengths behind the tags at these places, -1 for a damaged one, and where they end."""
    values, at, goes_on = np.zeros(len(places), np.int64), places + 1, np.ones(len(places), np.bool_)
    for shift in range(0, 7 * _LONGEST, 7):
        byte = data[np.minimum(at, len(data) - 1)]
        values += np.where(goes_on, (byte & 127).astype(np.int64) << shift, 0)
        at = at + goes_on
        goes_on &= byte >= 128
        if not goes_on.any():
            return values, at
    return np.where(goes_on, -1, values), at


def _varints(data: Bytes, begins: Places, sizes: Places) -> NDArray[np.int64] | None:
    """Return numbers that have so many bytes each; None if one has others than protobuf would write."""
    if (sizes < 1).any() or (sizes > 10).any():
        return None
    values = np.zeros(len(begins), np.uint64)
    for place in range(int(sizes.max(initial=0))):
        rows = sizes > place
        byte = data[np.where(rows, begins + place, 0)]
        is_last = sizes == place + 1
        if (rows & ((byte < 128) != is_last)).any() or (place and (is_last & (byte == 0)).any()):
            return None
        values |= np.where(rows, (byte & 127).astype(np.uint64) << np.uint64(7 * place), np.uint64(0))
    return values.view(np.int64)
