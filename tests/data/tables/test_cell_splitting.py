"""Rows that are split at once: their cells are those of the csv module, and which rows are left to that."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence

import pytest

from tpuctl.data.sources.csv_files import split_cells
from tpuctl.data.tfrecord.texts import MARGIN, Texts

LONGEST = 1 << 20
"""Bytes of a row that is split at once."""
ROWS = [b"1,a\n", b"22,bb\r\n", b"333,ccc"]


class Parser:
    """Splits rows by the csv module, and notes which."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []

    def __call__(self, rows: Sequence[bytes]) -> list[list[str]]:
        self.rows += rows
        lines = [row.decode().splitlines(keepends=True) for row in rows]
        return [next(csv.reader(line)) for line in lines]


def split(
    rows: Sequence[bytes], width: int = 2, delimiter: str = ","
) -> tuple[list[list[str]] | None, list[bytes]]:
    """Return the rows of cells, None where they are split one by one, and those that were parsed."""
    parser = Parser()
    columns = split_cells(rows, delimiter, width, parser)
    if columns is None:
        return None, parser.rows
    assert len(columns) == width
    return [list(cells) for cells in zip(*(column.strings() for column in columns), strict=True)], parser.rows


@pytest.mark.parametrize(
    ("rows", "cells"),
    [
        (ROWS, [["1", "a"], ["22", "bb"], ["333", "ccc"]]),
        ([b"a,b"], [["a", "b"]]),
        ([b",\n", b",\r", b",\r\n", b","], [["", ""]] * 4),
        ([b"a,b\n\n\r\n", b"c,d\n\r\n\n"], [["a", "b"], ["c", "d"]]),
        (["ä,ö\n".encode(), "漢,😀\n".encode()], [["ä", "ö"], ["漢", "😀"]]),
        ([b'"a",b\n', b'c,"d"\n', b'"e","f"\n'], [["a", "b"], ["c", "d"], ["e", "f"]]),
        ([b'"a,a",b\n', b'"","\n"\n', b'"x\r\ny",z\n'], [["a,a", "b"], ["", "\n"], ["x\r\ny", "z"]]),
        ([b"a,b\n", b'"c","d"\n', b"e,f"], [["a", "b"], ["c", "d"], ["e", "f"]]),
        ([b"a, b \n", b"\tc,d\n"], [["a", " b "], ["\tc", "d"]]),
    ],
)
def test_usual_rows_are_split_without_the_csv_module(rows: list[bytes], cells: list[list[str]]) -> None:
    assert split(rows) == (cells, [])
    assert split(rows[::-1]) == (cells[::-1], [])


@pytest.mark.parametrize("width", [1, 2, 3, 7])
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_rows_have_any_width_and_delimiter(width: int, delimiter: str) -> None:
    cells = [[f"{row}.{column}" for column in range(width)] for row in range(5)]
    rows = [delimiter.join(row).encode() + b"\n" for row in cells]
    assert split(rows, width, delimiter) == (cells, [])
    quoted = [delimiter.join(f'"{cell}"' for cell in row).encode() + b"\r\n" for row in cells]
    assert split(quoted, width, delimiter) == (cells, [])


@pytest.mark.parametrize(
    "unusual",
    [
        b'"a ""b""",c\n',
        b'a"b,c\n',
        b'"a"b,c\n',
        b'a"b",c\n',
        b'"""",c\n',
        b"a,b,c\n",
        b"a\n",
        b"a\rb,c\n",
        b"\n",
        b'"a,b\n',
        b'"a,b",c,d\n',
    ],
)
def test_another_row_is_left_to_the_parser(unusual: bytes) -> None:
    for place in range(4):
        rows, expected = [*ROWS[:2], b"4,d\n"], [["1", "a"], ["22", "bb"], ["4", "d"]]
        rows.insert(place, unusual)
        expected.insert(place, ["its", "own"])
        left: list[bytes] = []

        def parse(rows: Sequence[bytes], left: list[bytes] = left) -> list[list[str]]:
            left += rows
            return [["its", "own"] for _ in rows]

        columns = split_cells(rows, ",", 2, parse)
        assert columns is not None
        assert [
            list(cells) for cells in zip(*(column.strings() for column in columns), strict=True)
        ] == expected
        assert left == [unusual]


def test_a_bad_row_is_left_to_who_reads_row_by_row() -> None:
    assert split_cells([*ROWS[:2], b"a,b,c\n"], ",", 2, lambda rows: ["is bad"]) is None


@pytest.mark.parametrize(
    "rows",
    [
        [b"a,\0\n"],
        [b"a,b\n", b""],
        [b"a,\xff\n"],
        [b"a,b\n", b"\x80,b\n"],
        ["ä".encode()[:1], "ä".encode()[1:] + b",b"],
        [b"a,b" + b"\n" * 8],
        [b"x" * (LONGEST - 1) + b",b"],
    ],
)
def test_rows_that_are_no_plain_text_are_read_one_by_one(rows: list[bytes]) -> None:
    assert split(rows) == (None, [])


def test_what_is_just_plain_is_split_at_once() -> None:
    assert split([b"a,b" + b"\n" * 7, b"c,d\n"]) == ([["a", "b"], ["c", "d"]], [])
    assert split([b"x" * (LONGEST - 2) + b",b"]) == ([["x" * (LONGEST - 2), "b"]], [])
    assert split([b"\x7f,b\n"]) == ([["\x7f", "b"]], [])


def test_columns_can_be_read_as_numbers_at_their_ends() -> None:
    columns = split_cells([b"1,22222\n", b'"3","4"\n'], ",", 2, Parser())
    assert columns is not None
    for column in columns:
        assert isinstance(column, Texts)
        assert int(column.begins.min()) >= MARGIN
        assert int((column.begins + column.sizes).max()) + MARGIN <= len(column.data)


def test_random_rows_have_the_cells_of_the_csv_module() -> None:
    generator = random.Random(5)
    for _ in range(300):
        width = generator.randint(1, 3)
        cells = [
            ["".join(generator.choices('ab,"\n ä', k=generator.randint(0, 4))) for _ in range(width)]
            for _ in range(generator.randint(1, 5))
        ]
        rows = [
            (",".join(_quoted(cell, generator) for cell in row) or '""').encode() + b"\n" for row in cells
        ]
        found, _ = split(rows, width)
        assert found == [next(csv.reader(row.decode().splitlines(keepends=True))) for row in rows]


def _quoted(cell: str, generator: random.Random) -> str:
    if generator.random() < 0.5 or any(character in cell for character in ',"\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell
