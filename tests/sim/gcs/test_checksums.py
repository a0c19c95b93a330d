"""Checksums of uploads: computed while bytes come, and compared with those that clients send.

The checksum of two parts together, without their bytes.
"""

from __future__ import annotations

import base64
import hashlib

import google_crc32c
import pytest

from tpuctl.sim.gcs.checksums import Checksums, ExpectedChecksums, hash_header
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.storage.store import combine_crc32c

CRC32C, MD5 = "rth90Q==", "jXd/OF09/siBXSD3SWAm3A=="
"""Of `data`."""


def test_checksums_of_pieces_are_those_of_the_whole() -> None:
    checksums = Checksums()
    assert (checksums.size, checksums.crc32c, checksums.md5) == (0, "AAAAAA==", "1B2M2Y8AsgTpgAmY7PhCfg==")
    for piece in (b"da", b"", b"ta"):
        checksums.update(piece)
    assert (checksums.size, checksums.crc32c, checksums.md5) == (4, CRC32C, MD5)
    halves = Checksums()
    halves.update_crc32c(b"data")
    halves.update_md5(b"data")
    assert (halves.size, halves.crc32c, halves.md5) == (4, CRC32C, MD5)


def test_checksums_are_those_of_the_standard() -> None:
    data = bytes(range(256)) * 9
    checksums = Checksums()
    checksums.update(data)
    number = google_crc32c.value(data).to_bytes(4, "big")
    assert checksums.crc32c == base64.b64encode(number).decode()
    assert checksums.md5 == base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


@pytest.mark.parametrize(
    ("headers", "fields", "expected"),
    [
        ({}, None, (None, None)),
        ({"X-Goog-Hash": "crc32c=a,md5=b"}, None, ("a", "b")),
        ({"X-Goog-Hash": " MD5=b== , crc32c=a=="}, None, ("a==", "b==")),
        ({"X-Goog-Hash": "sha=c,crc32c"}, None, (None, None)),
        ({"Content-MD5": "m"}, None, (None, "m")),
        ({"Content-MD5": "m", "X-Goog-Hash": "crc32c=a,md5=b"}, None, ("a", "m")),
        ({"X-Goog-Hash": "crc32c=a,md5=b"}, {"crc32c": "x", "md5Hash": "y"}, ("x", "y")),
        ({"X-Goog-Hash": "crc32c=a,md5=b"}, {"crc32c": 5, "md5Hash": ""}, ("a", "b")),
        ({}, {"md5Hash": "y"}, (None, "y")),
    ],
)
def test_a_client_sends_them_in_headers_or_in_fields(
    headers: dict[str, str], fields: dict[str, object] | None, expected: tuple[str | None, str | None]
) -> None:
    sent = ExpectedChecksums.of(headers, fields)
    assert (sent.crc32c, sent.md5) == expected


@pytest.mark.parametrize(
    ("crc32c", "md5", "message"),
    [
        (None, None, ""),
        (CRC32C, MD5, ""),
        ("AAAAAA==", MD5, f'Provided CRC32C "AAAAAA==" doesn\'t match calculated CRC32C "{CRC32C}".'),
        (CRC32C, "x", f'Provided MD5 hash "x" doesn\'t match calculated MD5 hash "{MD5}".'),
        (None, "x", f'Provided MD5 hash "x" doesn\'t match calculated MD5 hash "{MD5}".'),
    ],
)
def test_bytes_with_other_checksums_are_refused(crc32c: str | None, md5: str | None, message: str) -> None:
    expected = ExpectedChecksums(crc32c, md5)
    if not message:
        expected.check(CRC32C, MD5)
        return
    with pytest.raises(GcsError) as raised:
        expected.check(CRC32C, MD5)
    error = raised.value
    assert (error.status, error.xml_code, error.message) == (400, "BadDigest", message)


def test_composed_bytes_have_no_md5_to_compare() -> None:
    ExpectedChecksums(CRC32C, "x").check(CRC32C, None)
    assert hash_header("a", None) == "crc32c=a"
    assert hash_header("a", "b") == "crc32c=a,md5=b"


DATA = bytes(range(256)) * 5


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 255, 256, 1023, len(DATA)])
def test_the_checksum_of_two_parts_is_that_of_the_whole(size: int) -> None:
    first, second = DATA[: len(DATA) - size], DATA[len(DATA) - size :]
    combined = combine_crc32c(google_crc32c.value(first), google_crc32c.value(second), size)
    assert combined == google_crc32c.value(DATA)


def test_parts_may_have_terabytes() -> None:
    """However 2**41 bytes are made up, their checksum is one."""
    half, size = google_crc32c.value(bytes(1 << 20)), 1 << 20
    while size < 1 << 40:
        half, size = combine_crc32c(half, half, size), size * 2
    whole = combine_crc32c(half, half, size)
    rest = google_crc32c.value(DATA)
    ends_with_half = combine_crc32c(half, rest, len(DATA))
    assert combine_crc32c(half, ends_with_half, size + len(DATA)) == combine_crc32c(whole, rest, len(DATA))
