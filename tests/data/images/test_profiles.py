"""A profile or a tag from a stranger may be damaged: nothing but InvalidImage comes of it.

The orientation in EXIF data, byte by byte (Exif 2.32, 4.6.2; TIFF 6.0, 2).
"""

from __future__ import annotations

import io
import struct
import tracemalloc

import pytest
from PIL import Image, ImageCms

from tpuctl.data.images.header import InvalidImage, look, orientation
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


SRGB = {"r": (0.4361, 0.2225, 0.0139), "g": (0.3851, 0.7169, 0.0971), "b": (0.1431, 0.0606, 0.7141)}
"""The colorants of sRGB, adapted to D50 (IEC 61966-2-1, as its profiles have them)."""


def xyz(*values: float) -> bytes:
    """Return a colour (ICC.1:2022, 10.31)."""
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(value * 65536) for value in values))


COLORANTS = [(f"{name}XYZ".encode(), xyz(*values)) for name, values in SRGB.items()]


def curve(*values: int) -> bytes:
    """Return a curve by its points, or by its exponent in 256ths (10.6)."""
    return b"curv\0\0\0\0" + struct.pack(f">I{len(values)}H", len(values), *values)


def power(kind: int, *numbers: float) -> bytes:
    """Return a curve by a formula: exponent, a, b (10.18)."""
    fixed = (round(number * 65536) for number in numbers)
    return b"para\0\0\0\0" + struct.pack(f">H2x{len(numbers)}i", kind, *fixed)


GAMMA = curve(563)


def icc(
    space: bytes = b"RGB ", green: bytes = GAMMA, before: int = 0, shift: tuple[str, int, float] | None = None
) -> bytes:
    """Return a profile: colorants and the curve of green, after other tags; one number may be another."""
    colours = {name: [*values] for name, values in SRGB.items()}
    if shift:
        colours[shift[0]][shift[1]] += shift[2]
    tags = [(b"dmnd", b"text")] * before
    tags += [(f"{name}XYZ".encode(), xyz(*values)) for name, values in colours.items()]
    return with_tags(space, *tags, (b"gTRC", green))


def with_tags(space: bytes, *tags: tuple[bytes, bytes]) -> bytes:
    """Return a profile of a colour space with these tags."""
    begin, entries, content = 132 + 12 * len(tags), b"", b""
    for name, data in tags:
        entries += struct.pack(">4sII", name, begin + len(content), len(data))
        content += data
    return bytes(16) + space + bytes(108) + struct.pack(">I", len(tags)) + entries + content


@pytest.mark.parametrize(("colour", "axis"), [(colour, axis) for colour in "rgb" for axis in range(3)])
@pytest.mark.parametrize(
    ("by", "changes"), [(0.0039, False), (-0.0039, False), (0.0041, True), (-0.0041, True)]
)
def test_each_primary_is_near_that_of_srgb(colour: str, axis: int, by: float, changes: bool) -> None:
    assert changes_colours(icc(shift=(colour, axis, by))) is changes


@pytest.mark.parametrize(
    ("green", "changes"),
    [
        (curve(563), False),
        (curve(512), True),
        (curve(256), True),
        (curve(), True),
        (curve(0, 0), True),
        (curve(0, 14_024), False),
        (curve(0, 14_024, 65_535), False),
        (curve(0, 12_600, 65_535), True),
        (curve(0, 12_800, 65_535), False),
        (curve(0, 15_200, 65_535), False),
        (curve(0, 15_400, 65_535), True),
        (curve(0, 0, 14_024, 65_535), False),
        (power(0, 2.2), False),
        (power(0, 1.8), True),
        (power(3, 2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045), False),
        (power(3, 2.4, 1, 0), True),
        (power(1, 1, 0.428, 0), False),
        (power(1, 1, 0, 0.214), False),
        (power(1, 1, 0, -0.214), True),
        (power(1, 2.2, -1, 0), True),
    ],
)
def test_a_curve_has_the_light_of_srgb_in_its_middle(green: bytes, changes: bool) -> None:
    assert changes_colours(icc(green=green)) is changes


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (icc(b"CMYK"), True),
        (icc(b"GRAY", curve(256)), False),
        (icc(b"Lab ", curve(256)), False),
        (b"", False),
        (bytes(16) + b"CMYK", True),
        (bytes(16) + b"RGB ", False),
        (with_tags(b"RGB ", (b"A2B0", b"table")), True),
        (with_tags(b"RGB ", (b"A2B1", b"table")), False),
        (with_tags(b"GRAY", (b"A2B0", b"table")), False),
        (with_tags(b"RGB ", *[(name, xyz(1, 1, 1)) for name in (b"rXYZ", b"gXYZ", b"bXYZ")]), True),
        (with_tags(b"RGB ", *COLORANTS), False),
        (icc(green=curve(256), before=96), True),
        (icc(green=curve(256), before=97), False),
    ],
)  # fmt: skip
def test_a_profile_of_another_kind_says_little(data: bytes, changes: bool) -> None:
    assert changes_colours(data) is changes


def test_large_profiles_are_not_kept() -> None:
    tracemalloc.start()
    for number in range(20):
        changes_colours(number.to_bytes(4, "big") * (1 << 18))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1 << 20


TAG, WIDTH = 0x0112, 0x0100
SHORT, LONG = 3, 4
Entry = tuple[int, int, int, int]


def exif_tiff(*entries: Entry, order: str = "<", start: int = 8) -> bytes:
    """Return EXIF data from its TIFF header on."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    rows = b"".join(struct.pack(f"{order}HHIHH", *entry, 0) for entry in entries)
    head = mark + struct.pack(f"{order}I", start)
    return head.ljust(start, b"\0") + struct.pack(f"{order}H", len(entries)) + rows


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value", range(1, 9))
def test_it_is_read_in_both_byte_orders(value: int, order: str) -> None:
    assert orientation(exif_tiff((TAG, SHORT, 1, value), order=order)) == value
    assert (
        orientation(exif_tiff((WIDTH, SHORT, 1, 5), (TAG, SHORT, 1, value), order=order, start=20)) == value
    )


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_another_value_is_upright(value: int) -> None:
    assert orientation(exif_tiff((TAG, SHORT, 1, value))) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"II",
        b"XX" + exif_tiff((TAG, SHORT, 1, 6))[2:],
        exif_tiff((WIDTH, SHORT, 1, 6)),
        exif_tiff((TAG, LONG, 1, 6)),
        exif_tiff((TAG, SHORT, 1, 6))[:-3],
        exif_tiff((WIDTH, SHORT, 1, 6)) + exif_tiff((TAG, SHORT, 1, 6))[10:],
    ],
    ids=["nothing", "an order", "no order", "no tag", "another type", "cut", "behind the last entry"],
)
def test_data_without_an_orientation_is_upright(data: bytes) -> None:
    assert orientation(data) == 1
