"""Rows that are split at once have the cells of the csv module; cells are the numbers that Python reads."""

from __future__ import annotations

import csv
import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from tests.data.tables.hostile_tables import ODD_NUMBERS, ODD_TEXTS
from tpuctl.data.sources.csv_files import split_cells
from tpuctl.data.tables import csv_cells
from tpuctl.data.tables.cells import by_distinct, plain_cells, real_numbers, whole_numbers
from tpuctl.data.tables.csv_cells import given_column, infer_column
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


WHOLE, REAL = given_column("n", "int").convert, given_column("x", "float").convert


def texts(cells: Sequence[str]) -> Texts:
    return Texts.of([cell.encode() for cell in cells])


def ties(rng: random.Random) -> list[str]:
    """Numbers between two floats of 32 bits, and just beside: where 64 bits may round otherwise."""
    cells = []
    for _ in range(200):
        below = np.float32(rng.random() * 10.0 ** rng.randrange(-3, 6))
        middle = (float(below) + float(np.nextafter(below, np.float32(np.inf)))) / 2
        close = [middle * share for share in (1, 1 - 2e-16, 1 + 2e-16)]
        cells += [f"{number:.{digits}f}" for number in close for digits in (12, 17, 24)]
    return cells


def fits(cell: str, convert: object) -> bool:
    try:
        convert(cell)  # type: ignore[operator]
    except ValueError:
        return False
    return True


def test_numbers_are_exactly_those_of_single_cells() -> None:
    rng = random.Random(1)
    digits = ["".join(rng.choices("0123456789.-", k=rng.randrange(1, 30))) for _ in range(500)]
    large = [str(rng.randrange(-(10**18), 10**18)) for _ in range(100)]
    many = [*ODD_NUMBERS, *ODD_TEXTS, *ties(rng), *large, *digits]
    reals = [cell for cell in many if fits(cell, REAL)]
    packed = b"".join(struct.pack("<f", REAL(cell)) for cell in reals)
    assert real_numbers(texts(reals), REAL).tobytes() == packed  # type: ignore[arg-type]
    wholes = [cell for cell in many if fits(cell, WHOLE)]
    assert whole_numbers(texts(wholes), WHOLE).tolist() == [WHOLE(cell) for cell in wholes]  # type: ignore[arg-type]
    assert len(wholes) > 100
    assert len(reals) > 2_000


@pytest.mark.parametrize("cell", ["", "-", "1.5", "x", "--1", "1_0", "9223372036854775808"])
def test_a_cell_that_is_no_whole_number_does_not_fit(cell: str) -> None:
    with pytest.raises(ValueError, match=r"^$|invalid literal"):
        whole_numbers(texts(["1", cell, "2"]), WHOLE)  # type: ignore[arg-type]


@pytest.mark.parametrize("cell", ["-", ".", "-.", "1.2.3", "x", "1_0", "1e39", "3.4028235677973366e38"])
def test_a_cell_that_is_no_number_does_not_fit(cell: str) -> None:
    with pytest.raises(ValueError, match=r"^$|could not convert"):
        real_numbers(texts(["1", cell, "2"]), REAL)  # type: ignore[arg-type]


def test_a_type_is_inferred_from_buffers_as_from_texts() -> None:
    rng = random.Random(2)
    usual = [*map(str, range(20)), "0.5", "12.", "true", "word", "-3"]
    for _ in range(500):
        chosen = rng.choices(rng.choice([usual, usual[:20], ODD_NUMBERS, ODD_TEXTS]), k=rng.randrange(1, 200))
        assert csv_cells._count_texts(texts(chosen)) == csv_cells._count(chosen)
        assert infer_column("n", texts(chosen)).feature == infer_column("n", chosen).feature


class Noted:
    """Converts cells, and notes which."""

    def __init__(self, convert: object) -> None:
        self.cells: list[str] = []
        self._convert = convert

    def __call__(self, cell: str) -> float:
        self.cells.append(cell)
        return self._convert(cell)  # type: ignore[no-any-return,operator]


@pytest.mark.parametrize(
    ("cells", "singly"),
    [
        (["0", "7", "-7", "007", "-0"], []),
        (["1" * 18, "9" * 18, "-" + "9" * 17], []),
        (["1", "1" * 19, "2"], ["1" * 19]),
        (["-" + "9" * 18, "3"], ["-" + "9" * 18]),
        (["+1", " 2", "3"], ["+1", " 2"]),
        (["1" * 15, "9" * 15, "-" + "9" * 14], []),
        (["9" * 16, "-" + "9" * 15, "1"], []),
    ],
)
def test_plain_digits_are_converted_together(cells: list[str], singly: list[str]) -> None:
    noted = Noted(int)
    assert whole_numbers(texts(cells), noted).tolist() == [int(cell) for cell in cells]  # type: ignore[arg-type]
    assert noted.cells == singly


@pytest.mark.parametrize(
    ("cells", "singly"),
    [
        (["0", "1.5", "-2.25", ".5", "5.", "-.5", "00.10"], []),
        (["1" * 18, "0." + "1" * 16, "-" + "1" * 17], []),
        (["9007199254740992", "9007199254740993"], []),
        (["0.92345678901234567", "0.9234567890123456789"], []),
        (["9.2345678901234567" + "1" * 8], []),
        (["0.12345678901234567", "0.5"], ["0.12345678901234567"]),
        (["9.2345678901234567" + "1" * 9], ["9.2345678901234567" + "1" * 9]),
        (["1" * 19, "2"], ["1" * 19]),
        (["1e3", "2", "inf"], ["1e3", "inf"]),
        (["0.0000000000000000001"], ["0.0000000000000000001"]),
    ],
)
def test_plain_fractions_are_converted_together(cells: list[str], singly: list[str]) -> None:
    noted = Noted(float)
    found = real_numbers(texts(cells), noted)  # type: ignore[arg-type]
    assert found.tolist() == np.array([float(cell) for cell in cells]).astype(np.float32).tolist()
    assert noted.cells == singly


def test_a_number_just_between_two_of_32_bits_is_converted_by_itself() -> None:
    middle = "16777217.0000000000"
    noted = Noted(float)
    assert real_numbers(texts([middle, "16777217"]), noted).tolist() == [16777216.0] * 2  # type: ignore[arg-type]
    assert noted.cells == [middle]


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("0", 0), ("7", 7), ("-7", 7), ("10", 10), ("-0", 0), ("9" * 18, int("9" * 18)),
        ("07", "other"), ("-07", "other"), ("00", "other"), ("9" * 19, "other"), ("+1", "other"),
        ("", "other"), ("-", "other"), (".", "other"), ("-.", "other"), ("1.2.3", "other"),
        ("0.5", "fraction"), (".5", "fraction"), ("5.", "fraction"), ("-0.5", "fraction"),
        ("00.5", "fraction"),
        ("a", "word"), ("Z9", "word"), ("bcd", "word"), ("true", "other"), ("nan", "other"), ("inf", "other"),
        ("False", "other"), ("None", "other"), ("Infinity", "other"), ("_x", "other"), ("ä", "other"),
    ],
)  # fmt: skip
def test_what_is_plainly_a_number_or_a_word_is_told(cell: str, kind: object) -> None:
    found = plain_cells(texts([cell]))
    is_whole = isinstance(kind, int)
    assert found.wholes.tolist() == ([kind] if is_whole else [])
    assert (found.fractions, found.words) == (kind == "fraction", kind == "word")
    assert found.others.tolist() == [kind == "other"]
    among = plain_cells(texts(["12", cell, "x", "3.5"]))
    assert among.wholes.tolist() == ([12, kind] if is_whole else [12])
    assert (among.fractions, among.words) == (1 + (kind == "fraction"), 1 + (kind == "word"))
    assert among.others.tolist() == [False, kind == "other", False, False]


def test_the_same_cells_are_converted_once() -> None:
    noted = Noted(int)
    assert by_distinct(texts(["2", "10", "2", "2", "10"]), noted).tolist() == [2, 10, 2, 2, 10]  # type: ignore[arg-type]
    assert sorted(noted.cells) == ["10", "2"]
    assert by_distinct(texts([]), noted).tolist() == []  # type: ignore[arg-type]
