"""Reads the headers of a Parquet file's pages: what a row takes in memory, whatever its footer says.

A footer says sizes and which columns have dictionaries; Arrow's readers believe neither, and go by the
pages. A header says what its page unpacks to, and Arrow unpacks no page to more. Source: PageHeader of
parquet.thrift, and `SerializedPageReader` of cpp/src/parquet/column_reader.cc.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from tpuctl.data.tables.parquet_footer import Chunk, Footer, Group, Leaf, Reader
from tpuctl.data.trees.tree import LARGEST, Ranges

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
