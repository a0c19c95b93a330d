"""Encoding a tf.train.Example: its few messages are written by hand, in the bytes that protobuf would write.

Example { features = 1: Features { feature = 1: map of name -> Feature { bytes_list = 1 | float_list = 2 |
int64_list = 3 } } }, each list with its values, packed, in field 1. Source: tensorflow/core/example/*.proto.
The entries of the map are sorted by name, as protobuf's deterministic serialisation does.

- Encodes many tf.train.Examples a column at a time, in the bytes that `Encoder` writes for each.

  All records of a table have the same fields. What stands before a value depends on the value's size alone:
  a few heads serve all rows, and sums of sizes say where each part goes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.features import Kind
from tpuctl.data.tfrecord.frames import Frames, fill_checksums
from tpuctl.data.tfrecord.framing import OVERHEAD, frame_head
from tpuctl.data.tfrecord.texts import Bytes, Places, Texts, distinct, windows

Scalar: TypeAlias = bytes | str | int | float
Value: TypeAlias = Scalar | Sequence[Scalar]
"""One value of a field, or several of one type; bytes also hold packed numbers."""
_Texts: TypeAlias = bytes | str | Sequence[bytes | str]
_Floats: TypeAlias = bytes | float | Sequence[float]
_Ints: TypeAlias = bytes | int | Sequence[int]

_LIST_TAGS: dict[Kind, bytes] = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}
_FIRST, _SECOND = b"\x0a", b"\x12"
"""Tags of the fields 1 and 2 of any of these messages: each field has a length and so many bytes."""
_KINDS: dict[type, Kind] = {bytes: "bytes", str: "bytes", int: "int64", bool: "int64", float: "float"}

_LAST = [bytes([value]) for value in range(128)]
_MORE = [bytes([value | 128]) for value in range(128)]
_PACKED_AT_ONCE = 1 << 16
"""Integers that are packed at once."""
_MOST_CACHED = 4096
"""Entries and heads cached for a field: labels, categories and lengths repeat."""


class Encoder:
    """Serialises records that all have the same fields; the same values give the same bytes."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        """`kinds` names the fields in the order in which `encode` gets their values."""
        fields = sorted(enumerate(kinds.items()), key=_name)
        order = [index for index, _ in fields]
        self._entries = tuple(entry_of(name, kind) for _, (name, kind) in fields)
        self._sorted: Callable[[Sequence[Any]], Sequence[Any]] = (
            itemgetter(*order) if len(order) > 1 else tuple
        )
        self._heads = _Cache(record_head)

    def encode(self, values: Sequence[Value]) -> bytes:
        """Return the Example of one record.

        A value is one of its kind, or a sequence of them: bytes or str for `bytes`, int or bool for `int64`,
        float for `float`. For the latter two also bytes, packed already: `packed_ints`, `packed_floats`.
        """
        named = zip(self._entries, self._sorted(values), strict=True)
        features = b"".join([entry(value) for entry, value in named])
        return self._heads[len(features)] + features

    def encode_all(self, columns: Sequence[Sequence[Value]]) -> list[bytes]:
        """Return the Examples of many records, from the values that each field has in all of them."""
        heads = self._heads
        named = zip(self._entries, self._sorted(columns), strict=True)
        entries = [map(entry, values) for entry, values in named]
        return [heads[len(features)] + features for features in map(b"".join, zip(*entries, strict=True))]


def encode(values: Mapping[str, Value]) -> bytes:
    """Return the Example of any values by name; their types decide on the kinds.

    A list that mixes types, or an empty one, raises TypeError.
    """
    kinds = {name: _kind(name, value) for name, value in values.items()}
    return Encoder(kinds).encode(list(values.values()))


def record_head(size: int) -> bytes:
    """Return the bytes of an Example before its features, which have so many bytes."""
    return _FIRST + varint(size)


def entry_of(name: str, kind: Kind) -> Callable[[Any], bytes]:
    """Return what encodes a field of a record: its name and its value."""
    return _ENTRIES[kind](name)


def delimited(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sizes of fields whose contents have these: with their tag and their length."""
    lengths = sum((sizes >= 1 << bits).astype(np.int64) for bits in (7, 14, 21, 28, 35))
    return sizes + 2 + lengths


def packed_ints(values: NDArray[np.integer] | NDArray[np.bool_]) -> bytes:
    """Return integers as a packed int64 list, in C order; takes little more memory than these bytes."""
    flat = values.ravel()
    if len(flat) <= _PACKED_AT_ONCE:
        return _packed(flat)
    starts = range(0, len(flat), _PACKED_AT_ONCE)
    return b"".join([_packed(flat[start : start + _PACKED_AT_ONCE]) for start in starts])


def _packed(values: NDArray[np.integer] | NDArray[np.bool_]) -> bytes:
    """Return the same of integers in a row: takes up to a hundred bytes for each on the way."""
    wide = values.astype(np.int64).view(np.uint64)
    if not len(wide) or np.max(wide) < 128:
        return wide.astype(np.uint8).tobytes()
    shifted = wide[:, None] >> np.arange(0, 70, 7, dtype=np.uint64)
    used = shifted > 0
    used[:, 0] = True
    groups = (shifted & np.uint64(127)).astype(np.uint8)
    groups[:, :-1] |= np.where(used[:, 1:], 128, 0).astype(np.uint8)
    packed: bytes = groups[used].tobytes()
    return packed


def packed_floats(values: NDArray[np.floating]) -> bytes:
    """Return floats as a packed list of 32-bit ones, in C order."""
    packed: bytes = values.astype("<f4").tobytes()
    return packed


def varint(value: int) -> bytes:
    """Return an integer of up to 64 bits as protobuf writes it, a negative one as its complement."""
    if 0 <= value < 128:
        return _LAST[value]
    if 0 <= value < 1 << 14:
        return _MORE[value & 127] + _LAST[value >> 7]
    if 0 <= value < 1 << 21:
        return _MORE[value & 127] + _MORE[value >> 7 & 127] + _LAST[value >> 14]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _name(numbered: tuple[int, tuple[str, Kind]]) -> str:
    return numbered[1][0]


def _kind(name: str, value: Value) -> Kind:
    items = [value] if isinstance(value, (bytes, str, int, float)) else value
    types = {type(item) for item in items}
    if len(types) != 1 or not types <= _KINDS.keys():
        raise TypeError(f"feature {name!r} needs values of one type: bytes, str, int or float")
    return _KINDS[types.pop()]


def _field(tag: bytes, content: bytes) -> bytes:
    return b"".join((tag, varint(len(content)), content))


class _Cache(dict[int, bytes]):
    """Bytes by number, computed at first use, and cached while they are few."""

    def __init__(self, compute: Callable[[int], bytes]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, number: int) -> bytes:
        computed = self._compute(number)
        if len(self) < _MOST_CACHED:
            self[number] = computed
        return computed


class FieldHeads(dict[int, bytes]):
    """The bytes of a field's map entry before its content, by the size of that.

    The content is one field of the list: a single value, or all of them packed. A table may have a hundred
    thousand fields, so that few objects are made for each.
    """

    __slots__ = ("_key", "_tag")

    def __init__(self, name: str, kind: Kind) -> None:
        super().__init__()
        self._key, self._tag = _field(_FIRST, name.encode()), _LIST_TAGS[kind]

    def __missing__(self, size: int) -> bytes:
        head = self.of_list(len(varint(size)) + 1 + size) + _FIRST + varint(size)
        if len(self) < _MOST_CACHED:
            self[size] = head
        return head

    def of_list(self, size: int) -> bytes:
        """Return the bytes before a list of so many bytes, whatever fields it has."""
        length = varint(size)
        feature = varint(1 + len(length) + size)
        head = b"".join((self._key, _SECOND, feature, self._tag, length))
        return b"".join((_FIRST, varint(len(head) + size), head))

    def packed(self, values: bytes) -> bytes:
        """Return the complete entry of packed numbers."""
        return self[len(values)] + values if values else self.of_list(0)


def _bytes_entry(name: str) -> Callable[[_Texts], bytes]:
    heads = FieldHeads(name, "bytes")

    def encoded(value: _Texts) -> bytes:
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            return heads[len(value)] + value
        content = b"".join(
            [_field(_FIRST, text.encode() if isinstance(text, str) else text) for text in value]
        )
        return heads.of_list(len(content)) + content

    return encoded


def _float_entry(name: str) -> Callable[[_Floats], bytes]:
    heads, pack = FieldHeads(name, "float"), struct.Struct("<f").pack
    head = heads[4]

    def encoded(value: _Floats) -> bytes:
        if isinstance(value, float):
            return head + pack(value)
        return heads.packed(value if isinstance(value, bytes) else struct.pack(f"<{len(value)}f", *value))

    return encoded


def _int_entry(name: str) -> Callable[[_Ints], bytes]:
    heads = FieldHeads(name, "int64")
    entries: dict[int, bytes] = {}

    def encoded(value: _Ints) -> bytes:
        if isinstance(value, int):
            entry = entries.get(value)
            if entry is None:
                entry = heads.packed(varint(value))
                if len(entries) < _MOST_CACHED:
                    entries[value] = entry
            return entry
        return heads.packed(
            value if isinstance(value, bytes) else b"".join([varint(number) for number in value])
        )

    return encoded


_ENTRIES: dict[Kind, Callable[[str], Callable[[Any], bytes]]] = {
    "bytes": _bytes_entry,
    "float": _float_entry,
    "int64": _int_entry,
}


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
