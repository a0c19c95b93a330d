from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from tests.data.tables.hostile_tables import ODD_NUMBERS, ODD_TEXTS
from tpuctl.data.tables import csv_cells
from tpuctl.data.tables.cell_numbers import real_numbers, whole_numbers
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
