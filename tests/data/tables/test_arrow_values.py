"""Values of whole arrays of Arrow: those of their cells, and which arrays are read cell by cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.tables import arrow_values
from tpuctl.data.tables.arrow_values import add_classes, array_texts, parts_of_batch, with_arrays
from tpuctl.data.tables.cells import given_column
from tpuctl.data.tables.columns import Column, InvalidValue
from tpuctl.data.tfrecord.texts import Texts

WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LARGEST = 3.4028235677973366e38
"""The first float that does not round to one of 32 bits."""


class Single:
    """A column whose conversion of single cells is noted."""

    def __init__(self, kind: str) -> None:
        self.cells: list[object] = []
        column = given_column("x", kind)

        def convert(cell: object) -> Any:
            self.cells.append(cell)
            return column.convert(cell)

        self.many = with_arrays(Column("x", column.feature, convert, column.holds), kind).convert_many

    def values(self, cells: pa.Array) -> list[Any]:
        assert self.many
        values = self.many(cells)
        return values.cells() if isinstance(values, Texts) else np.asarray(values).tolist()


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_of_any_width_are_taken_at_once(name: str) -> None:
    cells = pa.array([0, 1, 127, 3], name)
    single = Single("int")
    assert (single.values(cells), single.values(cells[1:3])) == ([0, 1, 127, 3], [1, 127])
    assert (single.values(pa.array([], name)), single.cells) == ([], [])
    assert [str(Single("int").values(pa.array([2, 1], name)))] == ["[2, 1]"]


@pytest.mark.parametrize(
    ("number", "fits"), [((1 << 63) - 1, True), (1 << 63, False), ((1 << 64) - 1, False)]
)
def test_a_whole_number_has_63_bits(number: int, fits: bool) -> None:
    cells = pa.array([1, number], "uint64")
    if fits:
        assert Single("int").values(cells) == [1, number]
    else:
        with pytest.raises(InvalidValue):
            Single("int").values(cells)


def test_a_missing_or_another_number_is_read_by_itself() -> None:
    single = Single("int")
    with pytest.raises(InvalidValue):
        single.values(pa.array([1, None], "int64"))
    assert single.cells == [1, None]
    single = Single("int")
    with pytest.raises(InvalidValue):
        single.values(pa.array([True]))
    assert single.cells == [True]


@pytest.mark.parametrize("name", [*WHOLE, "float", "double"])
def test_numbers_are_floats_of_32_bits_at_once(name: str) -> None:
    cells = pa.array([0, 1, None, 3], name)
    single = Single("float")
    found = single.values(cells)
    assert found[:2] + found[3:] == [0.0, 1.0, 3.0]
    assert math.isnan(found[2])
    assert (single.values(cells[3:]), single.values(pa.array([], name)), single.cells) == ([3.0], [], [])


def test_a_number_that_32_bits_do_not_hold_is_refused() -> None:
    below = float(np.nextafter(LARGEST, 0))
    found = Single("float").values(pa.array([below, -below, math.inf, -math.inf, math.nan]))
    assert found[:4] == [np.finfo(np.float32).max, np.finfo(np.float32).min, math.inf, -math.inf]
    assert math.isnan(found[4])
    for number in (LARGEST, -LARGEST, 1e39):
        with pytest.raises(InvalidValue):
            Single("float").values(pa.array([1.0, number]))


def test_truths_are_taken_at_once() -> None:
    single = Single("bool")
    assert (single.values(pa.array([True, False, True])[1:]), single.cells) == ([0, 1], [])
    with pytest.raises(InvalidValue):
        single.values(pa.array([True, None]))
    assert single.cells == [True, None]
    with pytest.raises(InvalidValue):
        Single("bool").values(pa.array([1, 0]))


@pytest.mark.parametrize("name", ["string", "binary", "large_string", "large_binary"])
def test_texts_are_parts_of_one_buffer(name: str) -> None:
    cells = pa.array(["a", "", None, "größe", "z"], name)
    texts = array_texts(cells)
    assert texts is not None
    assert texts.cells() == [b"a", b"", b"", "größe".encode(), b"z"]
    sliced = array_texts(cells[2:4])
    assert sliced is not None
    assert sliced.cells() == [b"", "größe".encode()]
    for empty in (pa.array([], name), pa.array([None, None], name), pa.array([""], name)):
        none = array_texts(empty)
        assert none is not None
        assert none.cells() == [b""] * len(empty)


@pytest.mark.parametrize("kind", ["text", "bytes"])
def test_a_column_of_texts_is_taken_at_once(kind: str) -> None:
    single = Single(kind)
    assert (single.values(pa.array(["a", None])), single.cells) == ([b"a", b""], [])
    assert Single("text").values(pa.array([1, 2])) == [b"1", b"2"]


def test_the_rest_of_a_null_is_no_text() -> None:
    """A null may have bytes of its own in the buffer."""
    offsets, data = np.array([0, 2, 5, 6], np.int32), b"abcdef"
    mask = pa.py_buffer(bytes([0b101]))
    cells = pa.Array.from_buffers(pa.string(), 3, [mask, pa.py_buffer(offsets), pa.py_buffer(data)])
    texts = array_texts(cells)
    assert texts is not None
    assert texts.cells() == [b"ab", b"", b"f"]


def test_damaged_texts_and_other_types_are_read_cell_by_cell() -> None:
    offsets = np.array([0, 1, 2], np.int32)
    damaged = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"a\xff")])
    assert array_texts(damaged) is None
    assert [array_texts(pa.array(values)) for values in ([1], [[1]], [True])] == [None] * 3
    assert array_texts(pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([7]))) is None


@pytest.mark.parametrize(
    ("indices", "words", "expected"),
    [
        ([1, 0, 1], ["a", "bc"], [b"bc", b"a", b"bc"]),
        ([1, None, 0], ["a", "bc"], [b"bc", b"", b"a"]),
        ([None, None], ["a"], [b"", b""]),
        ([None], [], [b""]),
        ([0, 1], [None, "b"], [b"", b"b"]),
    ],
)
def test_texts_of_a_dictionary_are_those_of_its_words(
    indices: list[int | None], words: list[str | None], expected: list[bytes]
) -> None:
    texts = array_texts(pa.DictionaryArray.from_arrays(pa.array(indices, "int32"), pa.array(words, "string")))
    assert texts is not None
    assert texts.cells() == expected


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([3, 1, 3, 2], "int16"),
        pa.array([3, None, 3], "int64"),
        pa.array(["b", "a", None]),
        pa.array([0.5, 1.0]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.array(["b", None, "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([2, 0, 2]), pa.array(["x", "unused", "a"])),
        pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["x", None])),
        pa.array([True, False]),
        pa.array([["a"], ["b", "a"]]),
    ],
)
def test_classes_are_those_of_the_cells(cells: pa.Array) -> None:
    at_once, singly = ClassCollector("x"), ClassCollector("x")
    add_classes(at_once, cells)
    singly.add(cells.to_pylist())
    found, expected = at_once.finish(), singly.finish()
    assert (found.names, found.several) == (expected.names, expected.several)
    assert (found.labels is None) == (expected.labels is None)
    if found.labels is not None and expected.labels is not None:
        assert found.labels.tolist() == expected.labels.tolist()


def test_a_batch_is_cut_where_its_repeated_texts_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_values, "_PART", 10)
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 6), pa.array(["xxxx"]))
    batch = pa.record_batch({"n": pa.array(range(6)), "t": words, "u": words})
    assert [part["n"].to_pylist() for part in parts_of_batch(batch)] == [[0], [1], [2], [3], [4, 5]]
    single = pa.record_batch({"n": pa.array(range(6)), "t": words})
    assert [part["n"].to_pylist() for part in parts_of_batch(single)] == [[0, 1], [2, 3], [4, 5]]
    plain = pa.record_batch({"t": pa.array(["x" * 100] * 3)})
    assert [part.num_rows for part in parts_of_batch(plain)] == [3]
    assert [part.num_rows for part in parts_of_batch(batch.slice(0, 1))] == [1]
