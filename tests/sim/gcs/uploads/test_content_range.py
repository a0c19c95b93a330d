"""What a Content-Range says of a chunk of a resumable upload, and which of its bytes are new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.uploads import ContentRange


async def in_chunks(chunks: Sequence[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def new(header: str, stored: int, *chunks: bytes) -> list[bytes]:
    """Return the pieces of a body that are new to an upload with so many stored bytes."""

    async def collect() -> list[bytes]:
        return [piece async for piece in ContentRange.parse(header).new_bytes(in_chunks(chunks), stored)]

    return asyncio.run(collect())


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes 0-0/1", ContentRange(0, 0, 1)),
        ("bytes 0-9/10", ContentRange(0, 9, 10)),
        ("bytes 5-5/*", ContentRange(5, 5, None)),
        (" bytes 5-9/10 ", ContentRange(5, 9, 10)),
        ("bytes */10", ContentRange(None, None, 10)),
        ("bytes */0", ContentRange(None, None, 0)),
        ("bytes */*", ContentRange(None, None, None)),
    ],
)
def test_a_content_range_has_its_first_and_last_byte_and_the_total(
    header: str, expected: ContentRange
) -> None:
    parsed = ContentRange.parse(header)
    assert parsed == expected
    assert parsed.is_status_query == (expected.first is None)


@pytest.mark.parametrize(
    "header",
    ["", "bytes", "bytes 5-4/10", "bytes 0-10/10", "bytes 0-11/10", "bytes -1-3/*", "bytes */", "bytes 1-/2"],
)
def test_a_content_range_that_contradicts_itself_is_refused(header: str) -> None:
    with pytest.raises(GcsError) as raised:
        ContentRange.parse(header)
    assert (raised.value.status, raised.value.message) == (
        400,
        f"Failed to parse Content-Range header: {header}",
    )


@pytest.mark.parametrize(
    ("header", "stored", "chunks", "pieces"),
    [
        ("bytes 0-5/6", 0, (b"abc", b"def"), [b"abc", b"def"]),
        ("bytes 0-5/6", 1, (b"abc", b"def"), [b"bc", b"def"]),
        ("bytes 0-5/6", 3, (b"abc", b"def"), [b"def"]),
        ("bytes 0-5/6", 4, (b"abc", b"def"), [b"ef"]),
        ("bytes 0-5/6", 6, (b"abc", b"def"), []),
        ("bytes 3-5/6", 3, (b"def",), [b"def"]),
        ("bytes 3-5/6", 5, (b"de", b"f"), [b"f"]),
        ("bytes 0-3/*", 0, (b"abc", b"def"), [b"abc", b"d"]),
        ("bytes 0-2/*", 0, (b"abc", b"def"), [b"abc"]),
        ("bytes 1-3/*", 2, (b"bc", b"def"), [b"c", b"d"]),
        ("bytes */*", 0, (b"abc", b""), [b"abc"]),
    ],
)
def test_the_bytes_behind_the_stored_ones_and_within_the_range_are_new(
    header: str, stored: int, chunks: tuple[bytes, ...], pieces: list[bytes]
) -> None:
    assert new(header, stored, *chunks) == pieces


def test_a_chunk_that_leaves_a_gap_is_refused_with_both_offsets() -> None:
    with pytest.raises(GcsError) as raised:
        new("bytes 4-5/6", 3, b"ef")
    assert (raised.value.status, raised.value.message) == (
        503,
        "Invalid request. According to the Content-Range header, the upload offset is 4 byte(s), "
        "which exceeds already uploaded size of 3 byte(s).",
    )


def test_no_more_bytes_than_the_total_are_taken() -> None:
    ContentRange(total=3).check_total(3)
    ContentRange().check_total(4)
    with pytest.raises(GcsError) as raised:
        ContentRange(total=3).check_total(4)
    assert (raised.value.status, raised.value.message) == (
        400,
        "4 bytes were received, more than the 3 announced.",
    )
