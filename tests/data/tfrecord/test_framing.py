"""Records in a TFRecord file and in a buffer, whole in each piece, and as an attacker would write them."""

from __future__ import annotations

import io
import struct

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.tfrecord import example_decoding
from tpuctl.data.tfrecord.example_decoding import MOST_VALUES, TooManyValues, check_values, counts, decode
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.frames import Frames, fill_checksums
from tpuctl.data.tfrecord.framing import LONGEST, OVERHEAD, frame, read_frames, read_records
from tpuctl.errors import UsageError


class Dribble(io.BytesIO):
    """A stream that gives at most three bytes at a time, as a network may."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size, 3) if size and size > 0 else size)


def in_frames(data: bytes, part: int = 50) -> list[bytes]:
    """Read the records of a file many at a time."""
    batches = read_frames(Dribble(data), len(data), part)
    return [batch[begin:end] for batch, bounds in batches for begin, end in bounds]


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_what_is_framed_reads_back(records: list[bytes]) -> None:
    data = b"".join(map(frame, records))
    assert list(read_records(io.BytesIO(data))) == records
    assert list(read_records(Dribble(data))) == records
    assert in_frames(data) == records
    assert len(data) == sum(map(len, records)) + OVERHEAD * len(records)


def test_the_frame_is_the_one_tensorflow_documents() -> None:
    # written by tf.io.TFRecordWriter
    assert frame(b"tpu").hex() == "0300000000000000b099490e747075eb90e5cd"


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.data())
def test_any_flipped_bit_is_noticed_at_the_offset_of_its_record(
    records: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(map(frame, records)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    starts = [sum(len(record) + OVERHEAD for record in records[:index]) for index in range(len(records))]
    with pytest.raises(UsageError) as caught:
        list(read_records(io.BytesIO(bytes(whole))))
    assert caught.value.facts["offset"] == max(start for start in starts if start <= place)
    with pytest.raises(UsageError) as also:
        in_frames(bytes(whole))
    assert also.value.message == caught.value.message


@pytest.mark.parametrize("size", [1, 8, 11, 12, 15, 24, 27])
def test_a_file_that_ends_inside_its_second_record_says_where_that_begins(size: int) -> None:
    first, second = frame(b"one"), frame(b"two-and-more")
    stream = read_records(io.BytesIO(first + second[:size]))
    assert next(stream) == b"one"
    with pytest.raises(UsageError, match=rf"record at byte {len(first)} is damaged.*ends in the middle"):
        next(stream)
    with pytest.raises(UsageError, match=rf"record at byte {len(first)} is damaged.*ends in the middle"):
        in_frames(first + second[:size])


RECORDS = [b"a", b"", b"four" * 5, b"zz"]
SIZES = [17, 16, 36, 18]


def test_frames_are_those_of_a_file() -> None:
    frames = Frames.of(RECORDS)
    assert frames.data == b"".join(map(frame, RECORDS))
    assert frames.ends.tolist() == np.cumsum(SIZES).tolist()
    assert len(frames) == 4
    assert list(frames.records()) == RECORDS
    assert Frames.joined(list(map(frame, RECORDS))).data == frames.data
    assert (len(Frames.of([])), list(Frames.of([]).records())) == (0, [])


@pytest.mark.parametrize(
    ("size", "counts"),
    [(1, [1, 1, 1, 1]), (17, [1, 1, 1, 1]), (33, [2, 1, 1]), (32, [1, 1, 1, 1]), (53, [2, 1, 1]),
     (54, [2, 2]), (69, [3, 1]), (86, [3, 1]), (87, [4]), (1000, [4])],
)  # fmt: skip
def test_a_piece_has_whole_frames_and_not_more_than_its_size_unless_it_is_one(
    size: int, counts: list[int]
) -> None:
    frames = Frames.of(RECORDS)
    pieces = list(frames.pieces(size))
    assert [count for _, count in pieces] == counts
    assert b"".join(data for data, _ in pieces) == frames.data
    starts = np.cumsum([0, *counts])
    for (data, count), start in zip(pieces, starts, strict=False):
        assert len(data) == sum(SIZES[start : start + count])
    assert list(Frames.of([]).pieces(size)) == []


def test_checksums_are_written_behind_each_record() -> None:
    frames = Frames.of(RECORDS)
    empty = np.frombuffer(frames.data, np.uint8).copy()
    for end in frames.ends.tolist():
        empty[end - 4 : end] = 0
    filled = fill_checksums(empty, frames.ends)
    assert filled.data == frames.data
    assert filled.ends.tolist() == frames.ends.tolist()


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
