"""How many values a record counts for, and what is none (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import pytest

from tpuctl.data.tfrecord.example_decoding import TooManyValues, check_values
from tpuctl.data.tfrecord.example_encoding import encode

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
