"""Which bytes of an object a Range header selects, and how they are read."""

from __future__ import annotations

import io

import pytest

from tpuctl.sim.gcs.downloads import PIECE, ByteRange, parse_range
from tpuctl.sim.gcs.errors import GcsError


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-8", 0, 9),
        ("bytes=0-9", 0, 10),
        ("bytes=0-10", 0, 10),
        ("bytes=9-9", 9, 10),
        ("bytes=9-99", 9, 10),
        ("bytes=3-3", 3, 4),
        ("bytes=3-", 3, 10),
        ("bytes=0-", 0, 10),
        ("bytes=-1", 9, 10),
        ("bytes=-9", 1, 10),
        ("bytes=-10", 0, 10),
        ("bytes=-11", 0, 10),
        (" bytes=2-4 ", 2, 5),
    ],
)
def test_a_range_is_a_part_even_if_it_has_all_bytes(header: str, start: int, end: int) -> None:
    selected = parse_range(header, 10)
    assert selected == ByteRange(start, end, partial=True)
    assert selected.size == end - start


@pytest.mark.parametrize(
    "header", [None, "", "bytes=-", "bytes=1", "lines=1-2", "bytes=0-1,5-6", "bytes=a-b"]
)
@pytest.mark.parametrize("size", [0, 10])
def test_without_a_range_that_can_be_understood_it_is_the_whole_object(header: str | None, size: int) -> None:
    assert parse_range(header, size) == ByteRange(0, size, partial=False)


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ("bytes=10-", 10), ("bytes=10-20", 10), ("bytes=-0", 10), ("bytes=4-3", 10), ("bytes=1-0", 10),
        ("bytes=0-", 0), ("bytes=0-0", 0), ("bytes=-1", 0),
    ],
)  # fmt: skip
def test_a_range_without_a_byte_of_the_object_cannot_be_satisfied(header: str, size: int) -> None:
    with pytest.raises(GcsError) as raised:
        parse_range(header, size)
    assert (raised.value.status, raised.value.message) == (416, "The requested range cannot be satisfied.")


@pytest.mark.parametrize(
    ("start", "end", "sizes"),
    [
        (0, 0, []),
        (3, 3, []),
        (3, 7, [4]),
        (0, PIECE, [PIECE]),
        (1, PIECE + 1, [PIECE]),
        (0, PIECE + 1, [PIECE, 1]),
        (5, 2 * PIECE + 7, [PIECE, PIECE, 2]),
    ],
)
def test_a_range_is_read_in_pieces(start: int, end: int, sizes: list[int]) -> None:
    data = bytes(number % 251 for number in range(2 * PIECE + 100))
    pieces = list(ByteRange(start, end).read(io.BytesIO(data)))
    assert [len(piece) for piece in pieces] == sizes
    assert b"".join(pieces) == data[start:end]


def test_a_file_that_is_shorter_than_its_range_ends_the_reading() -> None:
    assert list(ByteRange(2, 9).read(io.BytesIO(b"abcd"))) == [b"cd"]
