"""The comment of a converted image, in the file: which says why, and where it is looked for."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.data.images.zoo.pictures import chunk
from tpuctl.data.images.report import comment, conversion_of

PNG = b"\x89PNG\r\n\x1a\n"
PREFIX = "Converted by tpuctl: "


def png(text: bytes, before: int = 0) -> bytes:
    """Return the head of a PNG with a comment, `before` bytes of another text in front of it."""
    other = chunk(b"tEXt", bytes(before)) if before else b""
    return PNG + other + chunk(b"tEXt", b"Comment\0" + text) + chunk(b"IDAT", b"pixels")


def jpeg(text: bytes, before: int = 0) -> bytes:
    """Return the head of a JPEG with a comment, `before` bytes of another segment in front of it."""
    other = struct.pack(">BBH", 0xFF, 0xE0, before + 2) + bytes(before)
    return b"\xff\xd8" + other + struct.pack(">BBH", 0xFF, 0xFE, len(text) + 2) + text + b"\xff\xda pixels"


def test_the_comment_names_every_reason() -> None:
    assert comment(("to 3 channels",)) == PREFIX + "to 3 channels"
    assert comment(("to 3 channels", "to 8 bits")) == PREFIX + "to 3 channels, to 8 bits"
    assert comment(()) == ""


@pytest.mark.parametrize("image", [png, jpeg])
def test_the_reasons_are_read_from_the_file_and_nothing_behind_them(image: Callable[[bytes], bytes]) -> None:
    assert conversion_of(image(PREFIX.encode() + b"to 3 channels")) == "to 3 channels"
    assert conversion_of(image(b"by hand")) == ""
    assert conversion_of(b"") == ""


@pytest.mark.parametrize("image", [png, jpeg])
def test_what_is_no_ascii_in_a_comment_is_shown_as_replaced(image: Callable[[bytes], bytes]) -> None:
    assert conversion_of(image(PREFIX.encode() + b"caf\xe9")) == "caf\ufffd"


@pytest.mark.parametrize(
    ("begin", "found"), [(4096 - 34, "to 3 channels"), (4096 - 33, "to 3 channel"), (4096, "")]
)
def test_a_comment_is_looked_for_in_the_first_4096_bytes(begin: int, found: str) -> None:
    text = PREFIX.encode() + b"to 3 channels"
    at = jpeg(text).index(text)
    assert conversion_of(jpeg(text, before=begin - at)) == found


def test_a_damaged_length_says_nothing() -> None:
    data = jpeg(PREFIX.encode() + b"to 3 channels")
    at = data.index(PREFIX.encode())
    assert conversion_of(data[: at - 2] + b"\0\0" + data[at:]) == ""
