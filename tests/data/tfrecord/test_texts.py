"""The bytes of many cells in one buffer: which are there, which are the same, and how they are copied."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tpuctl.data.tfrecord.texts import MARGIN, Texts, distinct, windows

CELLS = [b"ab", b"", b"longer", b"ab", "ä".encode(), b"\0", b"\0\0"]


def test_cells_are_parts_of_a_buffer() -> None:
    texts = Texts.of(CELLS)
    assert texts.cells() == CELLS
    assert texts.begins.tolist() == [0, 2, 2, 8, 10, 12, 13]
    chosen = texts.chosen(np.array([4, 0, 4]))
    assert chosen.strings() == ["ä", "ab", "ä"]
    assert chosen.data is texts.data, "nothing is copied"


def test_cells_are_copied_only_where_a_margin_is_missing() -> None:
    texts = Texts.of(CELLS)
    framed = texts.with_margins()
    assert framed.cells() == CELLS
    assert framed.begins[0] == MARGIN
    assert len(framed.data) == len(texts.data) + 2 * MARGIN
    assert framed.with_margins() is framed
    for data, begins in (
        (framed.data[1:], framed.begins - 1),
        (framed.data[:-1], framed.begins),
    ):
        short = Texts(data, begins, framed.sizes)
        assert short.with_margins().cells() == CELLS
        assert short.with_margins() is not short
    nothing = Texts.of([])
    assert nothing.with_margins() is nothing


@pytest.mark.parametrize("longest", [b"seven77", b"eight888", b"more than nine"])
def test_the_same_cells_are_told_however_long_they_are(longest: bytes) -> None:
    cells = [*CELLS, longest, b"longes", b"", longest, b"longer"]
    values, ranks = Texts.of(cells).distinct()
    assert len(values) == len(set(cells))
    assert [values[rank] for rank in ranks.tolist()] == cells
    assert Texts.of([]).distinct()[0] == []


@pytest.mark.parametrize("count", [1, 23, 24, 100])
def test_cells_are_copied_to_their_places(count: int) -> None:
    cells = [bytes([number % 250 + 1]) * (number % 3) for number in range(3 * count)]
    sizes = np.array([len(cell) for cell in cells])
    places = np.concatenate(([0], np.cumsum(sizes[::-1] + 1)[:-1]))[::-1].copy()
    target = np.zeros(int(sizes.sum()) + len(cells), np.uint8)
    Texts.of(cells).copy_to(target, places)
    assert target.tobytes() == b"".join(cell + b"\0" for cell in reversed(cells))


def test_a_cell_of_more_than_64_kilobytes_is_copied_too() -> None:
    cells = [b"x" * (1 << 16), b"", b"y"]
    target = np.zeros((1 << 16) + 1, np.uint8)
    Texts.of(cells).copy_to(target, np.array([1, 0, 0]))
    assert target.tobytes() == b"y" + cells[0]
    Texts.of([]).copy_to(target, np.zeros(0, np.int64))


def test_windows_are_all_parts_of_a_size() -> None:
    data = np.frombuffer(b"abcd", np.uint8)
    assert [part.tobytes() for part in windows(data, 3)] == [b"abc", b"bcd"]
    assert len(windows(data, 4)) == 1
    assert len(windows(data, 5)) == 0


@pytest.mark.parametrize("most", [7, 1 << 16, (1 << 16) + 1, 1 << 40])
def test_different_numbers_are_in_order(most: int) -> None:
    numbers = np.array([5, 0, most, 5, 3])
    values, places = distinct(numbers)
    assert list(values) == [0, 3, 5, most]
    assert places.tolist() == [2, 0, 3, 2, 1]
    assert [len(part) for part in map(list, distinct(np.zeros(0, np.int64)))] == [0, 0]  # type: ignore[arg-type]


def test_few_cells_of_a_large_buffer_are_read_without_a_copy_of_it() -> None:
    """A table of very many columns has one such buffer: a copy for each would be the square of its size."""
    texts = Texts(np.zeros(8 << 20, np.uint8), np.array([5, 8 << 19]), np.array([2, 3]))
    tracemalloc.start()
    try:
        assert texts.cells() == [b"\0\0", b"\0\0\0"]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
