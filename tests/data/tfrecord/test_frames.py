"""Records in one buffer are those of a TFRecord file, and whole in each piece of it."""

from __future__ import annotations

import numpy as np
import pytest

from tpuctl.data.tfrecord.frames import Frames, fill_checksums
from tpuctl.data.tfrecord.framing import frame

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
