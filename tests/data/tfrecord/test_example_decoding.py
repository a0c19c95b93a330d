"""The values of Examples by name, one by one or by columns, how many they are, and bytes that are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.analysis.comparison import column_fingerprints, hashes
from tpuctl.data.schema.features import Feature, Kind, Label, Tensor, Text
from tpuctl.data.tfrecord import example_decoding as module
from tpuctl.data.tfrecord.column_decoding import ColumnDecoder, Columns
from tpuctl.data.tfrecord.example_decoding import TooManyValues, check_values, counts, decode
from tpuctl.data.tfrecord.example_encoding import Encoder, encode
from tpuctl.data.tfrecord.texts import Texts
from tpuctl.errors import UsageError

RECORD = encode({"n": [1, -2, 1 << 40], "x": [0.5], "b": [b"\xff", b""]})


def test_values_are_lists_by_name_in_order() -> None:
    decoded = decode(RECORD)
    assert list(decoded) == ["b", "n", "x"]
    assert decoded == {"b": [b"\xff", b""], "n": [1, -2, 1 << 40], "x": [0.5]}
    assert decode(b"") == {}


def test_a_feature_without_a_list_has_no_values() -> None:
    entry = b"\x0a\x01n\x12\x00"  # its key, and an empty Feature
    assert decode(b"\x0a" + bytes([len(entry) + 2]) + b"\x0a" + bytes([len(entry)]) + entry) == {"n": []}


def test_values_of_a_kind_are_counted() -> None:
    kinds: list[tuple[str, Kind]] = [
        ("n", "int64"), ("b", "bytes"), ("x", "float"), ("n", "float"), ("b", "int64"), ("none", "bytes"),
    ]  # fmt: skip
    assert counts(RECORD, kinds) == [3, 2, 1, 0, 0, 0]


@pytest.mark.parametrize("data", [b"no Example", RECORD[:-1], b"\xff" * 20])
def test_what_is_no_example_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError) as refused:
        decode(data)
    assert refused.value.message == "The record is not a tf.train.Example."
    assert refused.value.hint == "tpuctl reads TFRecords of tf.train.Example only."
    with pytest.raises(UsageError):
        counts(data, [])


@pytest.mark.parametrize(("small", "is_refused"), [(len(RECORD), False), (len(RECORD) - 1, True)])
def test_only_the_values_of_a_large_record_are_counted_before_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch, small: int, is_refused: bool
) -> None:
    monkeypatch.setattr(module, "_SMALL", small)
    monkeypatch.setattr(module, "MOST_VALUES", 5)
    if not is_refused:
        assert len(decode(RECORD)) == 3
        return
    with pytest.raises(UsageError) as refused:
        decode(RECORD)
    assert refused.value.message == "The record has more than 5 values."
    assert refused.value.hint == "Keep large arrays as bytes, which TensorFlow reads with tf.io.decode_raw."
    monkeypatch.setattr(module, "MOST_VALUES", 100)
    assert len(decode(RECORD)) == 3


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


STRING, FEATURE, UNPACKED = 8, 8, 8
"""What each counts for; a packed number is one."""


def varint(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes((low | 128,)) + varint(rest) if rest else bytes((low,))


def field(number: int, content: bytes, wire: int = 2) -> bytes:
    """Return a field; one of wire type 2 with its length."""
    return varint(number << 3 | wire) + (varint(len(content)) if wire == 2 else b"") + content


def example(*lists: bytes) -> bytes:
    """Return an Example with a feature of each list."""
    entries = (field(1, field(1, b"x") + field(2, content)) for content in lists)
    return field(1, b"".join(entries))


def counts_for(record: bytes, count: int) -> bool:
    """Tell whether a record has exactly so many values."""
    check_values(record, count)
    with pytest.raises(TooManyValues):
        check_values(record, count - 1)
    return True


@pytest.mark.parametrize(
    ("record", "count"),
    [
        (encode({"x": [1, 127, 128, 1 << 40, -1]}), FEATURE + 5),
        (encode({"x": [0.5, 1.5]}), FEATURE + 2),
        (encode({"x": [b"", b"abc" * 100]}), FEATURE + 2 * STRING),
        (encode({"x": 1, "y": 0.5, "z": b"a"}), 3 * FEATURE + 1 + 1 + STRING),
        (example(b""), FEATURE),
        (example(field(1, b""), field(2, b""), field(3, b"")), 3 * FEATURE),
        (example(field(2, field(1, b"\0\0\0\0", 5) * 3)), FEATURE + 3 * UNPACKED),
        (example(field(3, field(1, b"\5", 0) + field(1, b"\x80\1", 0))), FEATURE + 2 * UNPACKED),
        (example(field(2, field(1, bytes(8), 1))), FEATURE + UNPACKED),
        (example(field(1, b"\5", 0)), FEATURE + UNPACKED),
        (example(field(3, field(1, b"\1" * 300))), FEATURE + 300),
        (field(2, b"else") + example(field(3, field(1, b"\1"))) + field(1, b"\5", 0), FEATURE + 1),
    ],
)
def test_a_record_counts_for_its_values(record: bytes, count: int) -> None:
    assert counts_for(record, count)


@pytest.mark.parametrize(
    "record", [b"", field(1, b""), field(2, b"\1\2\3"), field(1, field(1, field(1, b"x")))]
)
def test_a_record_without_features_counts_for_nothing(record: bytes) -> None:
    check_values(record, 0)


@pytest.mark.parametrize(
    "record",
    [
        b"\x0a",
        b"\x0a\5abcd",
        b"\x09" + bytes(7),
        b"\x0d" + bytes(3),
        b"\x08\x80",
        b"\x0b\x0c",
        b"\x0e",
        b"\x08" + b"\x80" * 10 + b"\0",
        example(field(3, b"\x0a\5ab")),
        example(b"\x1a\2a"),
    ],
)
def test_a_damaged_record_is_told(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it is damaged, or has groups, which no Example has$"):
        check_values(record, 1000)


def test_numbers_of_any_length_are_passed_over() -> None:
    check_values(b"\x08" + b"\xff" * 9 + b"\1", 0)
    check_values(field(1000, b"x") + field(7, bytes(4), 5) + field(7, bytes(8), 1), 0)
