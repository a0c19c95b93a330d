"""Reads the footer of a Parquet file: sizes and nulls of its columns.

pyarrow's own accessors of a column's metadata end the process where the footer is damaged: an exception of
C++ that nothing translates. The footer is FileMetaData of parquet.thrift in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from tpuctl.data.trees.tree import Ranges

_MAGIC = b"PAR1"
_LARGEST = 256 << 20
_DEEPEST = 32
_TEXT = 6
"""BYTE_ARRAY of the enum Type."""


class Chunk(NamedTuple):
    """A column of a row group."""

    path: str
    """Names from the column to what lies in it, with `.`."""
    is_text: bool
    has_dictionary: bool
    size: int
    """Bytes, unpacked."""
    nulls: int
    """0 where the file does not say."""


class Group(NamedTuple):
    """A row group."""

    size: int
    """Bytes of all columns, unpacked."""
    chunks: tuple[Chunk, ...]


class Footer(NamedTuple):
    """What the footer says of the rows."""

    rows: int
    groups: tuple[Group, ...]

    @property
    def dictionaries(self) -> list[Chunk]:
        """The columns whose texts are in a dictionary."""
        chunks = (chunk for group in self.groups for chunk in group.chunks)
        return [chunk for chunk in chunks if chunk.has_dictionary and chunk.is_text]

    @property
    def with_nulls(self) -> set[str]:
        """Names of the columns that have nulls."""
        chunks = (chunk for group in self.groups for chunk in group.chunks)
        return {chunk.path.partition(".")[0] for chunk in chunks if chunk.nulls}


def read_footer(ranges: Ranges, size: int) -> Footer:
    """Return the footer of a file of so many bytes; raises ValueError where it is damaged."""
    end = ranges.read(max(size - 8, 0), 8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or not 0 < length <= min(size - 8, _LARGEST):
        raise ValueError("it has no footer")
    try:
        content = _Reader(ranges.read(size - 8 - length, length)).struct()
        groups = tuple(_group(group) for group in content.get(4, ()))
        return Footer(_number(content[3]), groups)
    except (IndexError, KeyError, TypeError, AttributeError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("its footer is damaged") from error


def _group(content: dict[int, Any]) -> Group:
    return Group(_number(content[2]), tuple(_chunk(column[3]) for column in content[1]))


def _chunk(content: dict[int, Any]) -> Chunk:
    path = b".".join(content[3]).decode()
    nulls = content.get(12, {}).get(3, 0)
    return Chunk(path, content[1] == _TEXT, 11 in content, _number(content[6]), _number(nulls))


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


class _Reader:
    """Decodes values of Thrift's compact protocol; raises IndexError at the end, TypeError for others."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    def struct(self) -> dict[int, Any]:
        """Return the fields of a struct by their number."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise TypeError
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                return self._list()
            case 12:
                return self.struct()
        raise TypeError

    def _list(self) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        if count > len(self._data) - self._at:
            raise IndexError
        kind = head & 15
        return [self._byte() == 1 if kind in (1, 2) else self._value(kind) for _ in range(count)]

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise TypeError

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise IndexError
        self._at += size
        return self._data[self._at - size : self._at]
