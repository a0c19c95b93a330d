"""Images of any size take bounded memory: too many pixels are refused by the header."""

from __future__ import annotations

import io
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.data.images.bombs import blank_png, header
from tests.paths import ROOT
from tpuctl.data.images.contact_sheet import contact_sheet
from tpuctl.data.images.decoding import LARGE, MOST_PIXELS, decodable, shrunk
from tpuctl.data.images.header import InvalidImage, inspect_image
from tpuctl.data.images.rule import ImageRule

DECODED = 4 * MOST_PIXELS
"""Bytes that Pillow needs for the largest image: 4 for each pixel."""


RESIZE = ImageRule(None, None, (8, 8))


def peak_of_its_own(file: Path, act: str) -> int:
    """Return the most memory, in bytes, of a process that does something with the image in a file."""
    command = [sys.executable, "-m", "tests.data.images.test_decoding", str(file), act]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def act_on(file: Path, act: str) -> None:
    data = file.read_bytes()
    if act == "sheet":
        assert len(contact_sheet([(data, "caption")]).problems) == (inspect_image(data).width > 12_000)
    elif act == "resize":
        assert inspect_image(RESIZE.apply(data)[0]).width == 8
    else:
        assert data


@pytest.mark.parametrize(
    ("act", "colour", "depth"),
    [("sheet", 6, 8), ("resize", 2, 8), ("sheet", 3, 1)],
    ids=["RGBA on a sheet", "RGB resized", "P on a sheet"],
)
def test_a_photograph_of_a_hundred_megapixels_is_decoded_once(
    tmp_path: Path, act: str, colour: int, depth: int
) -> None:
    file = tmp_path / "large.png"
    file.write_bytes(blank_png(11_500, 11_500, colour=colour, depth=depth))
    assert peak_of_its_own(file, act) < peak_of_its_own(file, "read") + DECODED + (64 << 20)


def test_a_bomb_is_refused_before_a_pixel_is_decoded(tmp_path: Path) -> None:
    file = tmp_path / "bomb.png"
    file.write_bytes(blank_png(13_377, 13_377))
    assert file.stat().st_size < 600_000
    assert peak_of_its_own(file, "sheet") < peak_of_its_own(file, "read") + (32 << 20)


def test_the_largest_image_that_is_decoded_has_134_217_728_pixels() -> None:
    with decodable(blank_png(1 << 14, 1 << 13, depth=1, colour=0), (8, 8)) as image:
        assert image.width * image.height == MOST_PIXELS
    with (
        pytest.raises(InvalidImage, match="16384 × 8193 pixels"),
        decodable(blank_png(1 << 14, (1 << 13) + 1, depth=1, colour=0), (8, 8)),
    ):
        pass


def test_what_is_refused_says_how_large_it_is() -> None:
    bomb = blank_png(13_377, 13_377, depth=1, colour=0)
    refusal = "has 13377 × 13377 pixels, and at most 134 megapixels are decoded"
    assert contact_sheet([(bomb, "")]).problems == [refusal]
    with pytest.raises(InvalidImage) as refused:
        RESIZE.apply(bomb)
    assert str(refused.value) == refusal


def test_tensorflow_s_own_limit_holds_where_nothing_is_decoded() -> None:
    assert inspect_image(blank_png(23_000, 23_000, depth=1, colour=0)).width == 23_000
    with pytest.raises(InvalidImage, match="has 24000 × 24000 pixels, more than TensorFlow decodes"):
        inspect_image(blank_png(24_000, 24_000, depth=1, colour=0))


def test_a_second_header_does_not_hide_the_size() -> None:
    small, large = blank_png(8, 8), header(60_000, 60_000)
    place = small.index(b"IDAT") - 4
    hidden = small[:place] + large + small[place:]
    assert contact_sheet([(hidden, "")]).problems
    with pytest.raises(InvalidImage):
        RESIZE.apply(hidden)


def test_a_jpeg_of_very_many_scans_is_refused() -> None:
    stream = io.BytesIO()
    Image.new("L", (8, 8)).save(stream, "JPEG")
    data = stream.getvalue()
    scans = data[:-2] + 100 * data[data.index(b"\xff\xda") : -2] + data[-2:]
    with pytest.raises(InvalidImage, match="more than 100 scans"):
        RESIZE.apply(scans)


@pytest.mark.parametrize("marker", [0x01, *range(0xD0, 0xD8)], ids=hex)
def test_markers_without_a_length_hide_nothing_of_a_jpeg(marker: int) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (9, 7)).save(stream, "JPEG")
    data = stream.getvalue()
    assert inspect_image(data[:2] + bytes((0xFF, marker)) + data[2:]) == inspect_image(data)
    assert inspect_image(data)[:3] == (7, 9, 3)


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG", b"GIF89a", blank_png(8, 8)[:-20], b"\xff\xd8\xff" + bytes(99)]
)
def test_what_is_no_image_is_a_crossed_box(data: bytes) -> None:
    sheet = contact_sheet([(data, ""), (blank_png(4, 4), "")])
    assert len(sheet.problems) == 1
    drawn = Image.open(io.BytesIO(sheet.png))
    assert (drawn.getpixel((68, 68)), drawn.getpixel((200, 68))) == ((160, 160, 160), (0, 0, 0))


@pytest.mark.parametrize("size", [(LARGE // 64, 128), (128, LARGE // 64), (5_000, 5_000)])
@pytest.mark.parametrize(("mode", "modes"), [("RGB", {}), ("1", {"1": "L"}), ("P", {"P": "RGBA"})])
def test_a_shrunk_image_shows_the_same(size: tuple[int, int], mode: str, modes: dict[str, str]) -> None:
    whole = Image.linear_gradient("L").resize(size).convert(mode)
    target = (max(size[1] // 100, 8), max(size[0] // 100, 8))
    small = shrunk(whole, target, modes)
    assert small.size[0] < size[0] or small.size[1] < size[1]
    assert small.size[0] >= min(2 * target[1], size[0])
    final = small.resize((4, 4)).convert("L")
    expected = Image.linear_gradient("L").resize((4, 4))
    pairs = zip(final.tobytes(), expected.tobytes(), strict=True)
    assert max(abs(actual - usual) for actual, usual in pairs) < 16


@pytest.mark.parametrize(
    ("size", "target", "is_shrunk"),
    [((4096, 4096), (8, 8), False), ((4097, 4096), (8, 8), True), ((4097, 4096), (4000, 4000), False)],
)
def test_an_image_of_more_than_16_million_pixels_is_shrunk_where_much_smaller_will_do(
    size: tuple[int, int], target: tuple[int, int], is_shrunk: bool
) -> None:
    image = Image.new("L", size)
    assert (shrunk(image, target, {}) is not image) == is_shrunk


def test_an_error_of_its_user_is_no_invalid_image_of_another_size() -> None:
    with decodable(blank_png(8, 6), (4, 4)) as image:
        assert image.size == (8, 6)


if __name__ == "__main__":
    act_on(Path(sys.argv[1]), sys.argv[2])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
