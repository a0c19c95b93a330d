"""A profile or a tag from a stranger may be damaged: nothing but InvalidImage comes of it."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image, ImageCms

from tpuctl.data.images.formats import look
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.images.profiles import changes_colours

SUB_IMAGE, PROFILE = 254, 34675
_LONG, _TEXT = 4, 2


def srgb() -> bytearray:
    return bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())


def with_gamma(gamma: int) -> bytes:
    """Return the profile of sRGB with an exponent in its green curve."""
    profile = srgb()
    (count,) = struct.unpack_from(">I", profile, 128)
    entries = [struct.unpack_from(">4sI", profile, 132 + 12 * number) for number in range(count)]
    begin = next(begin for name, begin in entries if name == b"gTRC")
    assert profile[begin : begin + 4] == b"para"
    struct.pack_into(">i", profile, begin + 12, gamma)
    return bytes(profile)


def tiff(tag: int, kind: int, count: int, value: int) -> bytes:
    """Return a TIFF image with another entry for a tag."""
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "TIFF", tiffinfo={SUB_IMAGE: 0}, icc_profile=bytes(srgb()))
    data = bytearray(stream.getvalue())
    (begin,) = struct.unpack_from("<I", data, 4)
    (entries,) = struct.unpack_from("<H", data, begin)
    places = [begin + 2 + 12 * number for number in range(entries)]
    at = next(place for place in places if struct.unpack_from("<H", data, place) == (tag,))
    struct.pack_into("<HHII", data, at, tag, kind, count, value)
    return bytes(data)


def test_the_profile_of_srgb_changes_no_colours() -> None:
    assert not changes_colours(bytes(srgb()))
    assert changes_colours(with_gamma(1 << 16))


@pytest.mark.parametrize("gamma", [-(1 << 31), -(1 << 27)])
def test_a_curve_that_no_number_holds_is_passed_over(gamma: int) -> None:
    assert not changes_colours(with_gamma(gamma))


def test_a_profile_that_is_a_number_is_passed_over() -> None:
    assert look(tiff(PROFILE, _LONG, 1, 7)).changes == ("from TIFF",)


def test_a_tag_of_another_kind_is_damage() -> None:
    with pytest.raises(InvalidImage, match="cannot be decoded"):
        look(tiff(SUB_IMAGE, _TEXT, 4, 0x00414141))
