"""Examples as they are written, and the bytes of many cells in one buffer."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.example_encoding import (
    Encoder,
    Value,
    delimited,
    encode,
    packed_floats,
    packed_ints,
)
from tpuctl.data.tfrecord.texts import MARGIN, Texts, distinct, windows
from tpuctl.errors import UsageError

LISTS = st.one_of(
    st.lists(st.binary(max_size=50), min_size=1, max_size=5),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5),
)


@given(st.dictionaries(st.text(max_size=10), LISTS, max_size=5))
def test_what_is_encoded_decodes(values: dict[str, Value]) -> None:
    assert decode(encode(values)) == values


def test_single_values_and_texts_become_lists() -> None:
    record = encode({"name": "größe", "label": 3, "weight": 0.5, "flag": True})
    assert decode(record) == {
        "flag": [1],
        "label": [3],
        "name": ["größe".encode()],
        "weight": [0.5],
    }


def test_the_order_of_the_names_does_not_change_the_bytes() -> None:
    names = [f"feature_{index}" for index in range(20)]
    assert encode(dict.fromkeys(names, 1)) == encode(dict.fromkeys(reversed(names), 1))


def test_records_encoded_together_are_the_same_as_one_by_one() -> None:
    encoder = Encoder({"label": "int64", "area": "float", "image": "bytes", "boxes": "float"})
    records = [(1, 0.5, b"a", [1.0]), (300, -2.0, "text", []), (-1, 0.0, [b"b", b"c"], b"\0\0\0\0")]
    assert encoder.encode_all([*zip(*records, strict=True)]) == [encoder.encode(record) for record in records]
    assert Encoder({"x": "int64"}).encode_all([[1, 2]]) == [encode({"x": 1}), encode({"x": 2})]


@pytest.mark.parametrize("value", [[], [1, 0.5], [None], [[1]]])
def test_a_value_without_one_type_is_refused_by_name(value: Value) -> None:
    with pytest.raises(TypeError, match="'label' needs values of one type"):
        encode({"label": value})


def test_bytes_that_are_no_example_are_a_clear_error() -> None:
    with pytest.raises(UsageError, match=r"not a tf\.train\.Example"):
        decode(b"\xff\xff\xff")


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_packed_integers_are_those_of_a_list(values: list[int]) -> None:
    packed = Encoder({"n": "int64"}).encode([packed_ints(np.array(values, np.int64))])
    assert packed == Encoder({"n": "int64"}).encode([values])


def test_packed_floats_are_those_of_a_list() -> None:
    values = np.array([[0.5, -1e30], [1 / 3, 7]], np.float64)
    packed = Encoder({"x": "float"}).encode([packed_floats(values)])
    assert packed == Encoder({"x": "float"}).encode([values.astype(np.float32).ravel().tolist()])


@given(st.lists(st.binary(max_size=300), max_size=3), st.integers(-(2**63), 2**63 - 1))
def test_a_record_has_the_size_its_parts_predict(texts: list[bytes], number: int) -> None:
    lists = sum(delimited(np.array([len(text) for text in texts], np.int64)).tolist())
    entry = 2 + len(b"text") + int(delimited(delimited(np.array([lists])))[0])
    size = int(delimited(delimited(np.array([entry])))[0])
    assert len(Encoder({"text": "bytes"}).encode([texts])) == size
    assert decode(Encoder({"b": "int64", "a": "bytes"}).encode((number, texts))) == {
        "a": texts,
        "b": [number],
    }


EDGES = sorted({(1 << 7 * groups) + apart for groups in range(10) for apart in (-1, 0, 1)} - {(1 << 63) + 1})
"""Numbers at which protobuf's encoding takes one byte more."""


@pytest.mark.parametrize("number", [*EDGES, (1 << 63) - 1, -1, -(1 << 63)])
def test_numbers_at_the_edges_of_an_encoding_decode(number: int) -> None:
    number = min(number, (1 << 63) - 1)
    assert decode(encode({"n": number})) == {"n": [number]}
    assert decode(encode({"n": [number, 0, number]})) == {"n": [number, 0, number]}
    packed = packed_ints(np.array([number, 1, number], np.int64))
    assert Encoder({"n": "int64"}).encode([packed]) == encode({"n": [number, 1, number]})


@pytest.mark.parametrize("size", [0, 1, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 21) - 1, 1 << 21])
def test_a_field_has_its_tag_and_its_length(size: int) -> None:
    whole = len(Encoder({"x": "bytes"}).encode([[bytes(size)]]))
    of_list = delimited(np.array([size]))
    entry = 2 + len(b"x") + delimited(delimited(of_list))
    assert delimited(delimited(entry)).tolist() == [whole]


@pytest.mark.parametrize("bits", [28, 35, 42])
def test_the_length_of_a_long_field_has_more_bytes(bits: int) -> None:
    sizes = np.array([(1 << bits) - 1, 1 << bits])
    lengths = [1 + -(-int(size).bit_length() // 7) for size in sizes]
    expected = [size + length for size, length in zip(sizes.tolist(), lengths, strict=True)]
    assert delimited(sizes).tolist()[: 1 + (bits < 42)] == expected[: 1 + (bits < 42)]


def test_truths_and_small_numbers_are_packed_in_c_order() -> None:
    assert packed_ints(np.array([[True, False], [False, True]])) == b"\1\0\0\1"
    assert packed_ints(np.array([], np.int64)) == b""
    assert packed_ints(np.array([[1, 2], [3, 4]], np.uint8).T) == b"\1\3\2\4"
    assert packed_ints(np.array([127, 128], np.int16)) == b"\x7f\x80\1"


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
