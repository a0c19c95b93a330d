"""Decoding by columns gives what decoding one by one gives, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.analysis.comparison import column_fingerprints, hashes
from tpuctl.data.schema.features import Feature, Kind, Label, Tensor, Text
from tpuctl.data.tfrecord.column_decoding import ColumnDecoder, Columns
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.example_encoding import Encoder, encode
from tpuctl.data.tfrecord.texts import Texts

LONG = "a name of 140 characters " * 6
KINDS: dict[str, Kind] = {"n": "int64", "f": "float", "t": "bytes", "label": "int64", LONG: "bytes"}
FEATURES: dict[str, Feature] = {
    "n": Tensor("int64"), "f": Tensor("float32"), "t": Text(), "label": Label(("a", "b")), LONG: Text(),
}  # fmt: skip
ROW = st.tuples(
    st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300),
    st.floats(width=32, allow_nan=False),
    st.binary(max_size=200),
    st.integers(0, 1),
    st.binary(max_size=3) | st.sampled_from([b"x" * 20_000, b"y" * 127, b"z" * 128]),
)


def columns_of(records: list[bytes], kinds: dict[str, Kind] = KINDS) -> tuple[bytes, Columns | None]:
    data = b"junk" + b"more".join(records) + b"junk"
    begins = np.cumsum([4, *(len(record) + 4 for record in records[:-1])])
    ends = begins + [len(record) for record in records]
    return data, ColumnDecoder(kinds).decode(data, begins, ends)


@given(rows=st.lists(ROW, min_size=1, max_size=20))
def test_columns_have_what_records_have(rows: list[tuple[int, float, bytes, int, bytes]]) -> None:
    records = Encoder(KINDS).encode_all(list(zip(*rows, strict=True)))
    data, columns = columns_of(records)
    assert columns
    values = {
        name: column.cells() if isinstance(column, Texts) else column.tolist()
        for name, column in columns.values.items()
    }
    assert [{name: [column[row]] for name, column in values.items()} for row in range(len(rows))] == [
        *map(decode, records)
    ]
    prints = column_fingerprints(data, columns, FEATURES)
    assert [tuple(row) for row in prints.tolist()] == [hashes(record, FEATURES) for record in records]


@pytest.mark.parametrize(
    "other",
    [
        encode({"n": [1, 2], "t": b"x"}), encode({"n": 1, "t": [b"x", b"y"]}), encode({"n": 1.5, "t": b"x"}),
        encode({"n": 1}), encode({"n": 1, "t": b"x", "u": 1}), encode({"n": 1, "s": b"x"}),
        b"", b"\n", b"\xff" * 9,
        encode({"n": 1, "t": b"x"})[:-1], encode({"n": 1, "t": b"x"}) + b"x",
        encode({"n": 1, "t": b"x"}).replace(b"\x01", b"\x81\x00"),
        b"\x0a\x1a\x0a\x0b\x0a\x01t\x12\x06\x0a\x04\x0a\x02xx\x0a\x0b\x0a\x01n\x12\x06\x1a\x04\x0a\x02\x80\x01",
    ],
)  # fmt: skip
def test_records_that_are_not_written_so_are_left(other: bytes) -> None:
    kinds: dict[str, Kind] = {"n": "int64", "t": "bytes"}
    usual = encode({"n": 1, "t": b"x"})
    assert columns_of([usual, usual], kinds)[1]
    assert columns_of([usual, other, usual], kinds)[1] is None


@given(data=st.binary(max_size=60))
def test_any_bytes_are_left_or_are_an_example(data: bytes) -> None:
    kinds: dict[str, Kind] = {"a": "float", "b": "int64"}
    usual = bytearray(encode({"a": 1.5, "b": 300}))
    for place, byte in enumerate(data[: len(usual) // 2]):
        usual[byte % len(usual)] ^= place + 1
    changed = bytes(usual)
    _, columns = columns_of([changed], kinds)
    if columns:
        assert {"a": columns.values["a"].tolist(), "b": columns.values["b"].tolist()} == decode(changed)  # type: ignore[union-attr]
