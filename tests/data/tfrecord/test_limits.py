"""Records as an attacker would write them: lengths and values that fill the memory of their reader."""

from __future__ import annotations

import io
import struct

import google_crc32c
import pytest

from tpuctl.data.tfrecord import example_decoding
from tpuctl.data.tfrecord.example_decoding import MOST_VALUES, TooManyValues, check_values, counts, decode
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import LONGEST, frame, read_records
from tpuctl.errors import UsageError


class Recorder(io.BytesIO):
    """A stream that notes the largest read."""

    most = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.most = max(self.most, size or 0)
        return super().read(size)


def head(length: int) -> bytes:
    """The first 12 bytes of a record of this length, with the right checksum."""
    packed = struct.pack("<Q", length)
    crc = google_crc32c.value(packed)
    return packed + struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


@pytest.mark.parametrize("length", [LONGEST + 1, 1 << 60, 1 << 63, (1 << 64) - 1])
def test_a_length_beyond_the_limit_is_damage_and_not_read(length: int) -> None:
    stream = Recorder(frame(b"first") + head(length) + b"rest")
    records = read_records(stream)
    assert next(records) == b"first"
    with pytest.raises(UsageError, match=f"byte 21 is damaged: it would have {length} bytes, and at most"):
        next(records)
    assert stream.most < 100


def test_a_length_beyond_the_end_of_the_stream_is_not_read_either() -> None:
    stream = Recorder(head(LONGEST) + b"rest")
    with pytest.raises(UsageError, match="the file ends in the middle of it"):
        next(read_records(stream, 16))
    assert stream.most < 100


def tag(number: int, content: bytes) -> bytes:
    """A field of protobuf with a length."""
    size, length = bytearray(), len(content)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def example(feature: bytes, before: bytes = b"") -> bytes:
    return tag(1, before + tag(1, tag(1, b"x") + tag(2, feature)))


def integers(count: int) -> bytes:
    return tag(3, tag(1, bytes(count)))


def strings(count: int) -> bytes:
    return tag(1, b"\x0a\0" * count)


FEWER = 1 << 24
"""A limit for what takes seconds to count: its records are still so large that they are counted."""
MANY = {
    "packed integers": (MOST_VALUES, lambda: example(integers(MOST_VALUES + 1))),
    "several lists of one feature": (
        MOST_VALUES,
        lambda: example(integers(MOST_VALUES // 2) + integers(MOST_VALUES // 2 + 1)),
    ),
    "empty strings": (2 * FEWER, lambda: example(strings(2 * FEWER // 8 + 1))),
    "features without values": (FEWER, lambda: tag(1, tag(1, tag(2, b"")) * (FEWER // 8 + 1))),
}
"""Name -> the limit, and what makes a record beyond it: each takes much memory, so it is made when used."""


@pytest.mark.parametrize("name", MANY)
def test_more_values_than_memory_holds_are_refused_before_they_are_decoded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, record = MANY[name]
    monkeypatch.setattr(example_decoding, "MOST_VALUES", limit)
    with pytest.raises(UsageError, match=f"The record has more than {limit} values"):
        counts(record(), [("x", "int64")])


def test_a_group_does_not_hide_values() -> None:
    hidden = example(integers(MOST_VALUES + 1), before=b"\x7b\x7c")  # field 15: start and end of a group
    with pytest.raises(UsageError, match=r"not a tf\.train\.Example"):
        decode(hidden)


def test_large_records_of_few_values_are_read() -> None:
    photograph = encode({"image": bytes(100 << 20), "label": 3})
    assert decode(photograph)["label"] == [3]
    assert counts(photograph, [("image", "bytes")]) == [1]


@pytest.mark.parametrize(
    ("values", "count"),
    [({"x": [1] * 50}, 58), ({"x": [0.5] * 50}, 58), ({"x": [b"a", b"b"]}, 24), ({"x": 1, "y": b"z"}, 25)],
)
def test_values_are_counted(values: dict[str, object], count: int) -> None:
    record = encode(values)  # type: ignore[arg-type]
    check_values(record, count)
    with pytest.raises(TooManyValues):
        check_values(record, count - 1)


@pytest.mark.parametrize("depth", [200, 1_000_000])
def test_deep_nesting_is_no_example(depth: int) -> None:
    with pytest.raises(UsageError, match=r"not a tf\.train\.Example"):
        decode(b"\x0b" * depth + b"\x0c" * depth)
