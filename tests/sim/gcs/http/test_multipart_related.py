"""The body of a multipart/related upload, however it arrives, and bodies that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.uploads import MultipartRelated, boundary_of

LARGEST = 1 << 20


def body(newline: bytes = b"\r\n", content: bytes = b"data", metadata: bytes = b"{}") -> bytes:
    lines = (
        b"--B", b"Content-Type: application/json", b"", metadata,
        b"--B", b"Content-Type:  text/x ", b"X-Other:a:b", b"", content, b"--B--", b"epilogue",
    )  # fmt: skip
    return newline.join(lines)


def read(sent: bytes, size: int) -> tuple[bytes, dict[str, str], bytes]:
    """Return metadata, headers and content of a body that arrives in pieces of a size."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), size):
            yield sent[start : start + size]

    async def run() -> tuple[bytes, dict[str, str], bytes]:
        related = MultipartRelated(pieces(), b"B")
        metadata, headers = await related.metadata(), await related.content_headers()
        return metadata, headers, b"".join([piece async for piece in related.content()])

    return asyncio.run(run())


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
@pytest.mark.parametrize("size", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("content", [b"", b"data", b"\r\n--", b"\r\n\r\n-B\n--A" * 9])
def test_a_body_has_metadata_headers_and_content(newline: bytes, size: int, content: bytes) -> None:
    headers = {"content-type": "text/x", "x-other": "a:b"}
    assert read(body(newline, content, b'{"name": "a"}'), size) == (b'{"name": "a"}', headers, content)


@pytest.mark.parametrize("end", [0, 5, 40, 60, 80, -len("--B--\r\nepilogue")])
def test_a_body_that_ends_early_is_refused(end: int) -> None:
    with pytest.raises(GcsError, match="ends without its closing boundary") as raised:
        read(body()[:end], 16)
    assert raised.value.status == 400


@pytest.mark.parametrize(("size", "refused"), [(LARGEST - (1 << 15), False), (LARGEST + (1 << 15), True)])
def test_metadata_has_a_largest_size(size: int, refused: bool) -> None:
    sent = body(metadata=b"x" * size)
    if not refused:
        assert len(read(sent, 1 << 14)[0]) == size
        return
    with pytest.raises(GcsError, match="is too large") as raised:
        read(sent, 1 << 14)
    assert raised.value.status == 413


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/related; boundary=b", b"b"),
        ('multipart/related; BOUNDARY="a b"; type=x', b"a b"),
        ("multipart/related; boundary='a b'", b"a b"),
        ("multipart/related; boundary=b; type=x", b"b"),
    ],
)
def test_a_boundary_is_in_the_content_type(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize("content_type", ["", "multipart/related", "multipart/related; boundary="])
def test_a_type_without_a_boundary_is_refused(content_type: str) -> None:
    with pytest.raises(GcsError, match="has no boundary") as raised:
        boundary_of(content_type)
    assert raised.value.status == 400
