from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from tests.data.tables.hostile_tables import ODD_NUMBERS, ODD_TEXTS
from tpuctl.data.tables import csv_cells
from tpuctl.data.tables.cells import by_distinct, plain_cells, real_numbers, whole_numbers
from tpuctl.data.tables.csv_cells import given_column, infer_column
from tpuctl.data.tfrecord.texts import Texts

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
