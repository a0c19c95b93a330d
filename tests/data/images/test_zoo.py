"""Odd files: what the plan says of each by its header, and what becomes of it."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

from tests.data.images.zoo.files import PLACES, ZOO, OddFile
from tests.data.images.zoo.pictures import BLUE, GREEN, PRIMARIES, RED, SIZE
from tpuctl.data.images.header import InvalidImage, look
from tpuctl.data.images.report import conversion_of
from tpuctl.data.images.rule import ImageRule
from tpuctl.data.images.survey import look_at_file

RULE = ImageRule(3)
NEAR = 12
"""How far a colour may be from that of the picture, after a conversion with loss."""
SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))


def usable(odd: OddFile) -> bool:
    """Tell whether a file is kept or converted."""
    return not odd.why.startswith("bad")


def verdict_by_parts(data: bytes) -> str:
    """What the plan says, which reads parts of a file."""
    try:
        info = look_at_file(lambda at, size: data[at : at + size], len(data))
        RULE.check(info)
    except InvalidImage as error:
        return f"bad: {error}"
    return ", ".join(RULE.reasons(info))


@pytest.mark.parametrize("name", ZOO)
def test_every_odd_file_is_kept_converted_or_bad_for_its_reason(name: str) -> None:
    data, why = ZOO[name].make(), ZOO[name].why
    if why.startswith("bad: "):
        assert verdict_by_parts(data).startswith(why)
        with pytest.raises(InvalidImage) as refused:
            RULE.apply(data)
        assert f"bad: {refused.value}".startswith(why)
        return
    assert verdict_by_parts(data) == why
    final, info = RULE.apply(data)
    assert (final == data) == (not why)
    assert conversion_of(final) == why
    assert (info.channels, info.dtype, info.encoding in ("png", "jpeg")) == (3, "uint8", True)
    assert RULE.reasons(look(final)) == ()
    assert RULE.apply(data)[0] == final


@pytest.mark.parametrize("name", [name for name, odd in ZOO.items() if usable(odd) and odd.colours])
def test_what_is_used_shows_the_picture_upright_in_its_colours(name: str) -> None:
    with Image.open(io.BytesIO(RULE.apply(ZOO[name].make())[0])) as image:
        assert image.size == SIZE
        colours = [image.convert("RGB").getpixel(place) for place in PLACES]
    assert near(colours, ZOO[name].colours)


@pytest.mark.parametrize(
    ("file", "name"),
    [("adobe-rgb.jpg", "Adobe RGB"), ("display-p3.jpg", "Display P3"), ("profile-long.jpg", "Adobe RGB"),
     ("adobe-rgb.png", "Adobe RGB"), ("display-p3.webp", "Display P3")],
)  # fmt: skip
def test_the_colours_of_another_profile_are_those_of_srgb(file: str, name: str) -> None:
    with Image.open(io.BytesIO(RULE.apply(ZOO[file].make())[0])) as image:
        colours = [image.convert("RGB").getpixel(place) for place in PLACES]
    assert near(colours, [in_srgb(colour, name) for colour in (RED, GREEN, BLUE)])
    assert not near(colours, (RED, GREEN, BLUE))


def in_srgb(colour: tuple[int, ...], name: str) -> list[int]:
    """Change a colour by the matrices of both profiles; the curve is that of sRGB in both."""
    scaled = np.array(colour) / 255
    light = np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)
    ours = np.linalg.inv(np.array(SRGB).T) @ np.array(PRIMARIES[name]).T @ light
    ours = ours.clip(0, 1)
    encoded = np.where(ours <= 0.0031308, ours * 12.92, 1.055 * ours ** (1 / 2.4) - 0.055)
    return [round(value * 255) for value in encoded.tolist()]


def near(colours: Sequence[object], expected: object) -> bool:
    """Tell whether colours are alike, as far as an encoding with loss keeps them."""
    return bool(np.abs(np.array(colours, int) - np.array(expected, int)).max() <= NEAR)


def test_there_are_sixty_odd_files_and_more() -> None:
    assert len(ZOO) >= 100
    assert {odd.why.startswith("bad") for odd in ZOO.values()} == {True, False}
