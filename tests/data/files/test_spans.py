"""Small parts of a file are read together where they lie close, and come as if each was read alone."""

from __future__ import annotations

import numpy as np
import pytest

from tpuctl.data.files.listing import read_spans

CONTENT = bytes(index % 251 for index in range(3 << 20))
GAP, PIECE = 4096, 1 << 20


@pytest.mark.parametrize(
    ("spans", "reads"),
    [
        ([(5, 9)], [(5, 4)]),
        ([(0, 4), (4, 8), (8, 9)], [(0, 9)]),
        ([(0, 10), (10 + GAP, 20 + GAP)], [(0, 20 + GAP)]),
        ([(0, 10), (11 + GAP, 20 + GAP)], [(0, 10), (11 + GAP, 9)]),
        ([(PIECE - 9, PIECE - 1), (PIECE - 1, PIECE + 3)], [(PIECE - 9, 12)]),
        ([(PIECE - 9, PIECE), (PIECE, PIECE + 3)], [(PIECE - 9, 9), (PIECE, 3)]),
        ([(0, 100), (10, 20), (30, 40)], [(0, 100)]),
        ([(0, 4), (0, 4)], [(0, 4)]),
        ([(0, 0), (0, 0), (1, 1)], [(0, 1)]),
        ([(0, 9), (9000, 9001), (9001, 9009), (20_000, 20_001)], [(0, 9), (9000, 9), (20_000, 1)]),
    ],
)
def test_parts_that_lie_close_together_are_one_read(
    spans: list[tuple[int, int]], reads: list[tuple[int, int]]
) -> None:
    made: list[tuple[int, int]] = []

    def read(at: int, size: int) -> bytes:
        made.append((at, size))
        return CONTENT[at : at + size]

    assert read_spans(read, np.array(spans, np.int64)) == [CONTENT[begin:end] for begin, end in spans]
    assert made == reads


def test_parts_of_a_file_that_has_become_shorter_are_shorter() -> None:
    spans = np.array([(0, 4), (4, 8), (8, 12)], np.int64)
    assert read_spans(lambda at, size: b"012345"[at : at + size], spans) == [b"0123", b"45", b""]
