"""Reads the headers of a Parquet file's pages: what a row takes in memory, whatever its footer says.

A footer says sizes and which columns have dictionaries; Arrow's readers believe neither, and go by the
pages. A header says what its page unpacks to, and Arrow unpacks no page to more. Source: PageHeader of
parquet.thrift, and `SerializedPageReader` of cpp/src/parquet/column_reader.cc.

- Reads the footer of a Parquet file: sizes and nulls of its columns.

  pyarrow's own accessors of a column's metadata end the process where the footer is damaged: an exception of
  C++ that nothing translates. The footer is FileMetaData of parquet.thrift in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from tpuctl.data.trees.tree import LARGEST, Ranges

_MAGIC = b"PAR1"
_LARGEST = 256 << 20
_DEEPEST = 32
_TEXT = 6
"""BYTE_ARRAY of the enum Type."""
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Type -> bytes of a value in memory; of FIXED_LEN_BYTE_ARRAY, 7, its length."""
_REPEATED = 2
"""REPEATED of the enum FieldRepetitionType."""
_DEEPEST_SCHEMA = 100
"""Levels of columns in columns: Arrow calls a function in itself for each; not all versions have a limit."""
_MOST_VALUES = 1 << 24
"""Values of a footer: a gigabyte when they are decoded."""


class Leaf(NamedTuple):
    """A column without others in it."""

    is_text: bool
    width: int
    """Bytes of a value in memory; 0 for texts."""
    repeats: bool
    """Whether a row may have several values, or none."""


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
    begin: int = 0
    """Where its pages begin in the file."""
    packed: int = 0
    """Bytes that they take there."""
    values: int = 0
    row: int = 0
    """Bytes of a row, at most, as its pages say; see `parquet_pages`."""


class Group(NamedTuple):
    """A row group."""

    size: int
    """Bytes of all columns, unpacked."""
    chunks: tuple[Chunk, ...]
    rows: int = 0


class Footer(NamedTuple):
    """What the footer says of the rows."""

    rows: int
    groups: tuple[Group, ...]
    leaves: tuple[Leaf, ...] = ()
    """The columns of each group."""

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
        content = Reader(ranges.read(size - 8 - length, length)).struct()
        leaves = tuple(_leaves(content.get(2, ())))
        groups = tuple(_group(group) for group in content.get(4, ()))
        return Footer(_number(content[3]), groups, leaves)
    except (IndexError, KeyError, TypeError, AttributeError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("its footer is damaged") from error


def _leaves(elements: list[dict[int, Any]]) -> Iterator[Leaf]:
    """Yield the columns without others in them; the first element is the root."""
    above: list[tuple[int, bool]] = []  # how many columns are still to come in each, and whether it repeats
    for element in elements:
        while above and above[-1][0] <= 0:
            above.pop()
        repeats = bool(above) and element.get(3) == _REPEATED
        if above:
            left, is_repeated = above[-1]
            above[-1] = left - 1, is_repeated
            repeats |= is_repeated
        count = _number(element.get(5, 0))
        if 1 not in element or count:
            above.append((count, repeats))
            if len(above) >= _DEEPEST_SCHEMA:
                raise ValueError(f"its columns are nested more than {_DEEPEST_SCHEMA} levels deep")
            continue
        is_text = element[1] == _TEXT
        width = _WIDTHS.get(element[1], max(_number(element.get(2, 0)), 0))
        yield Leaf(is_text, 0 if is_text else width, repeats)


def _group(content: dict[int, Any]) -> Group:
    chunks = tuple(_chunk(column[3]) for column in content[1])
    return Group(_number(content[2]), chunks, _number(content.get(3, 0)))


def _chunk(content: dict[int, Any]) -> Chunk:
    path = b".".join(content[3]).decode()
    nulls = content.get(12, {}).get(3, 0)
    begins = [_number(content[field]) for field in (9, 11) if content.get(field)]
    return Chunk(
        path, content[1] == _TEXT, 11 in content, _number(content[6]), _number(nulls), min(begins, default=0),
        _number(content.get(7, 0)), _number(content.get(5, 0)),
    )  # fmt: skip


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


class Reader:
    """Decodes values of Thrift's compact protocol; raises IndexError at the end, TypeError for others."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        """Bytes that were read."""
        self._depth = 0
        self._values = 0

    def struct(self) -> dict[int, Any]:
        """Return the fields of a struct by their number."""
        self._descend()
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15)
        self._depth -= 1
        return fields

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise TypeError

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
        if count > len(self._data) - self.at:
            raise IndexError
        self._values += count
        if self._values > _MOST_VALUES:
            raise TypeError
        self._descend()
        kind = head & 15
        items = [self._byte() == 1 if kind in (1, 2) else self._value(kind) for _ in range(count)]
        self._depth -= 1
        return items

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
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise IndexError
        self.at += size
        return self._data[self.at - size : self.at]


_HEADS = (1 << 8, 1 << 16, 1 << 24)
"""Bytes that are read of a header, and where it is longer: statistics hold values. Arrow reads the last."""
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
"""Page types."""
_HEADERS = {_DATA: (5, 2), _DATA_2: (8, 4)}
"""Type of a page with values -> the fields of its own header, and of the encoding in that."""
_BY_DICTIONARY, _BY_PREFIX = (2, 8), 7
"""Encodings: PLAIN_DICTIONARY and RLE_DICTIONARY; DELTA_BYTE_ARRAY, which repeats the text before."""
_TEXT_OFFSET = 8
"""Bytes that a text takes besides its content, at most."""
_FARTHEST = 1 << 62
"""Places in a file: no system reads from one behind."""
_MOST_PAGES = 1 << 31
"""Bytes of the pages that are unpacked at once: one of each column."""


class _Page(NamedTuple):
    kind: int
    size: int
    """Bytes, unpacked."""
    values: int
    encoding: int


class _Facts(NamedTuple):
    """What the pages of a column of a row group say."""

    size: int
    """Bytes of all, unpacked."""
    largest: int
    """Bytes of one that is unpacked."""
    row: int
    """Bytes of a row, at most; without a text that is in a dictionary."""
    has_dictionary: bool


class Map(Protocol):
    """As `map`: works on the columns one after another, or on many at once."""

    def __call__(self, work: Callable[[_Column], _Facts], columns: list[_Column], /) -> Iterable[_Facts]: ...


_Column = tuple[Chunk, Leaf, int]
"""With the rows of its group."""


def checked_footer(ranges: Ranges, footer: Footer, map_all: Map = map) -> Footer:
    """Return the footer with what the pages say in the place of what it says itself.

    Raises ValueError for damage, and for pages or rows that fill the memory.
    """

    def facts(column: _Column) -> _Facts:
        chunk, leaf, rows = column
        return _facts(_pages(ranges, chunk), chunk, leaf, rows)

    groups = []
    for group in footer.groups:
        if len(group.chunks) != len(footer.leaves):
            raise ValueError("its footer is damaged")
        columns = [(chunk, leaf, group.rows) for chunk, leaf in zip(group.chunks, footer.leaves, strict=True)]
        known = list(map_all(facts, columns))
        if sum(each.largest for each in known) > _MOST_PAGES:
            raise ValueError(f"pages of it unpack to more than {_MOST_PAGES} bytes")
        if sum(each.row for each in known) > LARGEST:
            raise ValueError(f"a row of it may have more than {LARGEST} bytes")
        chunks = tuple(
            chunk._replace(
                is_text=leaf.is_text, has_dictionary=each.has_dictionary, size=each.size, row=each.row
            )
            for (chunk, leaf, _), each in zip(columns, known, strict=True)
        )
        groups.append(Group(sum(each.size for each in known), chunks, group.rows))
    return footer._replace(groups=tuple(groups))


def _facts(pages: Iterable[_Page], chunk: Chunk, leaf: Leaf, rows: int) -> _Facts:
    size = largest = row = 0
    has_dictionary = False
    for page in pages:
        size += page.size
        has_dictionary |= page.kind == _DICTIONARY
        largest = max(largest, page.size, page.values * leaf.width)
        if page.kind != _DICTIONARY:
            row = max(row, _row(page, leaf))
    repeats = -(-chunk.values // max(rows, 1)) if leaf.repeats else 1
    return _Facts(size, largest, row * repeats, has_dictionary)


def _row(page: _Page, leaf: Leaf) -> int:
    """Return the bytes of a value: of a text their mean in the page, of one that may repeat another all."""
    if not leaf.is_text:
        return leaf.width
    if page.encoding in _BY_DICTIONARY:
        return _TEXT_OFFSET
    return _TEXT_OFFSET + (page.size if page.encoding == _BY_PREFIX else page.size // max(page.values, 1))


def _pages(ranges: Ranges, chunk: Chunk) -> Iterator[_Page]:
    """Yield the pages as Arrow reads them: until all values were there."""
    at, values = chunk.begin, 0
    if not 0 <= at <= at + chunk.packed < _FARTHEST:
        raise ValueError("its footer is damaged")
    while values < chunk.values and at < chunk.begin + chunk.packed:
        page, size = _header(ranges, at)
        yield page
        values += page.values if page.kind in _HEADERS else 0
        at += size


def _header(ranges: Ranges, at: int) -> tuple[_Page, int]:
    """Return the page at a place, and the bytes that it takes with its header."""
    for length in _HEADS:
        data = ranges.read(at, length)
        reader = Reader(data)
        try:
            content = reader.struct()
        except IndexError:
            if len(data) < length:
                break
            continue
        except (TypeError, struct.error):
            break
        kind, size, packed = (_count(content.get(number)) for number in (1, 2, 3))
        own, encoding = _HEADERS.get(kind, (0, 0))
        header = content.get(own) if own else {1: 0}
        if not isinstance(header, dict):
            break
        return _Page(kind, size, _count(header.get(1)), header.get(encoding, 0)), reader.at + packed
    raise ValueError("its pages are damaged")


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("its pages are damaged")
    return value
