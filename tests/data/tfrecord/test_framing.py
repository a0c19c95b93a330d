from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.data.tfrecord.framing import OVERHEAD, frame, read_frames, read_records
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
