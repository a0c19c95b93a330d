"""The values of an Example by name, how many there are, and what is said of bytes that are none."""

from __future__ import annotations

import pytest

from tpuctl.data.schema.features import Kind
from tpuctl.data.tfrecord import example_decoding as module
from tpuctl.data.tfrecord.example_decoding import counts, decode
from tpuctl.data.tfrecord.example_encoding import encode
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
