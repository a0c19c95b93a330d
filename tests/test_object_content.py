"""The content of an object, by its size and checksum."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.object_content import Content, ContentDigest

DIGITS = Content(9, "4waSgw==")
"""The check value of CRC-32C, 0xE3069283, is that of these nine digits (RFC 3720, and the CRC catalogue)."""


def test_the_checksum_is_the_one_cloud_storage_shows(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123456789")
    assert Content.of(b"123456789") == DIGITS
    assert Content.of_file(tmp_path / "file") == DIGITS
    assert Content.of(b"") == Content(0, "AAAAAA==")


def test_pieces_give_the_content_of_the_complete_bytes() -> None:
    digest = ContentDigest()
    for piece in (b"1234", b"", b"56789"):
        digest.update(piece)
    assert digest.content() == DIGITS


@pytest.mark.parametrize(
    ("expected", "difference"),
    [
        (DIGITS, None),
        (Content(8, "4waSgw=="), ("bytes", 9, 8)),
        (Content(9, "AAAAAA=="), ("crc32c", "4waSgw==", "AAAAAA==")),
        (Content(8, "AAAAAA=="), ("bytes", 9, 8)),
    ],
)
def test_the_first_difference_is_named(
    expected: Content, difference: tuple[str, object, object] | None
) -> None:
    assert DIGITS.difference(expected) == difference


@given(st.lists(st.binary(max_size=5000), max_size=6))
def test_digests_of_pieces_are_appended_to_that_of_the_whole(pieces: list[bytes]) -> None:
    whole = ContentDigest()
    for piece in pieces:
        digest = ContentDigest()
        digest.update(piece)
        whole.append(digest)
    assert whole.content() == Content.of(b"".join(pieces))
