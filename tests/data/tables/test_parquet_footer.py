"""The footer as pyarrow's own accessors read it, and damages of it that end a process with these."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import items, no_progress
from tpuctl.data.options import Options
from tpuctl.data.sources.parquet_files import read_parquet
from tpuctl.data.tables.parquet import Chunk, Footer, Group, read_footer
from tpuctl.data.trees.local import LocalRanges, LocalTree
from tpuctl.data.trees.tree import ListedFile
from tpuctl.errors import TpuctlError

TABLE = pa.table(
    {
        "n": pa.array([1, None, 3] * 20),
        "t": ["a", "b", None] * 20,
        "x": [0.5] * 60,
        "v": [[1, 2], [], [3]] * 20,
        "label": ["p", "q", "p"] * 20,
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path, row_group_size=20)
    return path


def test_it_says_what_pyarrow_says(file: Path) -> None:
    ranges: LocalRanges = LocalTree.at(file).open(ListedFile(file.name, file.stat().st_size, 0))
    footer = read_footer(ranges, file.stat().st_size)
    ranges.close()
    metadata = pq.ParquetFile(file).metadata
    assert footer.rows == metadata.num_rows == 60
    assert footer.with_nulls == {"n", "t", "v"}, "an empty list has no item: that counts as a null"
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.size for group in footer.groups] == [group.total_byte_size for group in groups]
    assert [tuple(chunk[:5]) for group in footer.groups for chunk in group.chunks] == [
        (
            chunk.path_in_schema,
            chunk.physical_type == "BYTE_ARRAY",
            chunk.has_dictionary_page,
            chunk.total_uncompressed_size,
            chunk.statistics.null_count,
        )
        for group in groups
        for chunk in (group.column(place) for place in range(metadata.num_columns))
    ]


def test_random_damage_of_the_footer_ends_in_words(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """About one of 200 such damages ended the process, when pyarrow read the metadata of a column."""
    monkeypatch.setattr(LocalTree, "settle", lambda tree, newest: None)  # nothing is written later
    whole, generator = file.read_bytes(), random.Random(1)
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(250):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(begin, len(data) - 8)] = generator.randrange(256)
        file.write_bytes(data)
        try:
            source = read_parquet(LocalTree.at(file), Options(), no_progress)
            try:
                if sum(part.records for part in source.parts) < 1000:
                    items(source)
            finally:
                source.close()
        except TpuctlError:
            continue


@pytest.mark.parametrize("middle", [None, b"", b"\xff\xff\xff\x7f", bytes(8), b"\x0c\x00\x00\x00"])
def test_a_file_without_a_footer_is_one_in_words(tmp_path: Path, middle: bytes | None) -> None:
    (tmp_path / "a.parquet").write_bytes(b"" if middle is None else b"PAR1" + middle + b"PAR1")
    with pytest.raises(TpuctlError, match=r"'a\.parquet' is not a Parquet file"):
        read_parquet(LocalTree.at(tmp_path / "a.parquet"), Options(), no_progress)


class Kept:
    """Bytes as a file that is open."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, at: int, size: int) -> bytes:
        return self.data[at : at + size]

    def close(self) -> None:
        pass


def varint(value: int) -> bytes:
    """Return a number as Thrift's compact protocol has it."""
    low, rest = value & 127, value >> 7
    return bytes((low | 128,)) + varint(rest) if rest else bytes((low,))


def zigzag(value: int) -> bytes:
    return varint(value << 1 ^ value >> 63)


def field(step: int, kind: int, content: bytes = b"") -> bytes:
    """Return a field whose number is so much more than that of the one before."""
    return bytes((step << 4 | kind,)) + content


def far_field(number: int, kind: int, content: bytes = b"") -> bytes:
    """Return a field with its whole number."""
    return bytes((kind,)) + zigzag(number) + content


def listed(kind: int, *items: bytes) -> bytes:
    """Return a list: its length in the head up to 14, after it from 15 on."""
    count = len(items)
    head = bytes((count << 4 | kind,)) if count < 15 else bytes((0xF0 | kind,)) + varint(count)
    return head + b"".join(items)


BOOL_TRUE, BOOL_FALSE, BYTE, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = (
    1,
    2,
    3,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
)
NAME = listed(BINARY, varint(1) + b"a", varint(4) + b"list")


def chunk(kind: int = 6, *, nulls: bytes = b"", dictionary: bytes = b"") -> bytes:
    """Return a column of a row group: type, path, size and what may follow."""
    return b"".join(
        (
            field(1, I32, zigzag(kind)),
            field(2, LIST, NAME),
            field(3, I64, zigzag(300)),
            dictionary,
            nulls,
            b"\0",
        )
    )


def group(*chunks: bytes, size: int = 70_000) -> bytes:
    """Return a row group."""
    columns = [field(3, STRUCT, content) + b"\0" for content in chunks]
    return field(1, LIST, listed(STRUCT, *columns)) + field(1, I64, zigzag(size)) + b"\0"


def footer(*groups: bytes, rows: int = 7, before: bytes = b"", after: bytes = b"") -> bytes:
    """Return the end of a file: its footer, the length of that, and the magic bytes."""
    counted = field(3, I64, zigzag(rows))
    content = before + (far_field(3, I64, zigzag(rows)) if before else counted)
    content += field(1, LIST, listed(STRUCT, *groups)) + after + b"\0"
    return content + len(content).to_bytes(4, "little") + b"PAR1"


def parsed(data: bytes) -> Footer:
    return read_footer(Kept(data), len(data))


NULLS = far_field(12, STRUCT, field(3, I64, zigzag(5)) + b"\0")
DICTIONARY = far_field(11, I64, zigzag(9))


def test_a_footer_written_by_hand_is_read() -> None:
    data = footer(group(chunk(), chunk(2, nulls=NULLS)), group(chunk(dictionary=DICTIONARY), size=0))
    assert parsed(data) == Footer(
        7,
        (
            Group(70_000, (Chunk("a.list", True, False, 300, 0), Chunk("a.list", False, False, 300, 5))),
            Group(0, (Chunk("a.list", True, True, 300, 0, 9),)),
        ),
    )
    assert parsed(data).with_nulls == {"a"}
    assert parsed(data).dictionaries == [Chunk("a.list", True, True, 300, 0, 9)]
    assert parsed(footer(group(chunk(2, dictionary=DICTIONARY)))).dictionaries == []


@pytest.mark.parametrize("count", [0, 1, 14, 15, 16, 200])
def test_lists_of_any_length_are_read(count: int) -> None:
    assert len(parsed(footer(*[group(chunk())] * count)).groups) == count
    assert [len(item.chunks) for item in parsed(footer(group(*[chunk()] * count))).groups] == [count]


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 8191, 8192, 1 << 31, (1 << 63) - 1, -1, -64, -65])
def test_numbers_of_any_size_are_read(rows: int) -> None:
    assert parsed(footer(rows=rows)).rows == rows


@pytest.mark.parametrize(
    "unknown",
    [
        field(1, BOOL_TRUE),
        field(1, BOOL_FALSE),
        field(1, BYTE, b"\xff"),
        field(1, I32, zigzag(-5)),
        field(1, DOUBLE, b"\xff" * 8),
        field(1, BINARY, varint(200) + b"\xff" * 200),
        field(1, BINARY, varint(0)),
        field(1, LIST, listed(BOOL_TRUE, b"\1", b"\2", b"\0")),
        field(1, LIST, listed(BOOL_FALSE, b"\1")),
        field(1, SET, listed(BYTE, b"\xff", b"\x80")),
        field(1, LIST, listed(LIST, listed(I32, zigzag(1)), listed(I32))),
        field(1, STRUCT, field(1, BOOL_TRUE) + field(15, STRUCT, b"\0") + b"\0"),
        far_field(500, BOOL_TRUE),
        far_field(-1, I64, zigzag(1)),
    ],
)
def test_fields_of_every_type_are_passed_over(unknown: bytes) -> None:
    assert parsed(footer(group(chunk()), before=unknown)) == parsed(footer(group(chunk())))
    assert parsed(footer(group(chunk()), after=unknown)) == parsed(footer(group(chunk())))


def nested(depth: int) -> bytes:
    """Return structs in structs, with that of the footer so many."""
    return (field(1, STRUCT) * (depth - 1)) + b"\0" * (depth - 1)


def test_structs_are_read_up_to_32_levels() -> None:
    assert parsed(footer(before=nested(32))).rows == 7
    assert parsed(footer(before=nested(32), after=far_field(9, STRUCT, b"\0"))).rows == 7
    with pytest.raises(ValueError, match=r"^its footer is damaged$"):
        parsed(footer(before=nested(33)))


@pytest.mark.parametrize(
    "data",
    [
        footer(before=field(1, MAP, b"\0")),
        footer(before=field(1, 13, b"\0")),
        footer(before=field(1, BINARY, varint(10_000))),
        footer(before=field(1, LIST, b"\xf8" + varint(10_000))),
        footer(before=field(1, I64, b"\x80" * 10 + b"\0")),
        footer(group(chunk(nulls=far_field(12, STRUCT, field(3, BINARY, varint(1) + b"5") + b"\0")))),
        footer(group(chunk(nulls=far_field(12, I64, zigzag(1))))),
        footer(b"\0"),
        footer(group(b"\0")),
        b"\0" + (1).to_bytes(4, "little") + b"PAR1",
        field(3, BINARY, varint(1) + b"7") + b"\0" + (4).to_bytes(4, "little") + b"PAR1",
    ],
)
def test_a_damaged_footer_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^its footer is damaged$"):
        parsed(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", footer()[:-1], footer()[:-4] + b"PARE", footer()[1:], b"\0" * 4 + b"PAR1"],
)
def test_an_end_that_is_none_of_a_parquet_file_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it has no footer$"):
        parsed(data)
