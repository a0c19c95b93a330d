"""What a picture becomes: its format, mode and pixels, side by side and in order, with a note on why."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from tests.data.images.zoo import (
    BLUE,
    GREEN,
    RED,
    ZOO,
    chunk,
    clear_index,
    exif,
    of_mode,
    picture,
    profile,
    save,
    stored,
    usable_names,
)
from tpuctl.data.images import decoding as module
from tpuctl.data.images.decoding import LARGE, Ahead, _Budget
from tpuctl.data.images.header import look
from tpuctl.data.images.report import comment, conversion_of
from tpuctl.data.images.rule import Goal, ImageRule, converted

LOSSY = (".jpg", ".webp", ".jp2", ".j2k", ".avif", ".heic")
NO_LOSS = {"png-inside.jpg", "lossless.webp"}
WITH_LOSS = {"jpeg-inside.png", "webp-inside.jpg", "heic-inside.jpg"}
WIDE = np.array([[0, 255, 256, 511], [512, 32_767, 65_279, 65_535]], np.uint16)


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def to(
    data: bytes, channels: int = 3, dtype: str = "uint8", size: tuple[int, int] | None = None
) -> Image.Image:
    return opened(converted(data, look(data), Goal(channels, dtype, size), ("why",)))


@pytest.mark.parametrize("name", usable_names())
def test_what_was_lossy_becomes_a_jpeg_and_everything_else_a_png(name: str) -> None:
    data = ZOO[name].make()
    is_lossy = name in WITH_LOSS or (name.endswith(LOSSY) and name not in NO_LOSS)
    assert to(data).format == ("JPEG" if is_lossy else "PNG")
    clear = to(data, 4)
    assert (clear.format, clear.mode) == ("PNG", "RGBA")


def test_a_jpeg_has_quality_95_and_half_of_the_colours() -> None:
    made = to(ZOO["lossy.webp"].make())
    reference = opened(save(picture(), "JPEG", quality=95, subsampling="4:2:0"))
    assert isinstance(made, JpegImagePlugin.JpegImageFile)
    assert isinstance(reference, JpegImagePlugin.JpegImageFile)
    assert made.quantization == reference.quantization
    assert JpegImagePlugin.get_sampling(made) == 2


@pytest.mark.parametrize("name", ["lossy.webp", "drawing.png"])
def test_the_reasons_are_in_the_file_and_nothing_of_the_original(name: str) -> None:
    data = (
        save(stored(6), "WEBP", exif=exif(6))
        if name.endswith("webp")
        else save(picture(), "PNG", exif=exif(1))
    )
    made = converted(data, look(data), Goal(3, "uint8", None), ("to sRGB", "to 3 channels"))
    assert conversion_of(made) == "to sRGB, to 3 channels"
    assert opened(made).getexif() == {}
    silent = converted(data, look(data), Goal(3, "uint8", None), ())
    assert conversion_of(silent) == ""
    assert "Comment" not in opened(silent).info


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("source", ["L", "LA", "RGB", "RGBA", "P", "1", "CMYK", "I;16"])
def test_every_mode_becomes_every_number_of_channels(source: str, channels: int, mode: str) -> None:
    encoding = "TIFF" if source in ("CMYK", "I;16") else "PNG"
    made = to(save(of_mode(source), encoding), channels)
    assert (made.mode, made.size) == (mode, (48, 32))
    if mode in ("RGB", "RGBA") and source in ("RGB", "RGBA", "P"):
        places = ((6, 6), (6, 25)) if source == "RGBA" else ((6, 6), (40, 6), (6, 25))
        colours = {(6, 6): RED, (40, 6): GREEN, (6, 25): BLUE}
        pixels = [made.getpixel(place) for place in places]
        assert [pixel[:3] for pixel in pixels if isinstance(pixel, tuple)] == [
            colours[place] for place in places
        ]


@pytest.mark.parametrize(
    ("source", "channels", "expected"),
    [("RGBA", 3, (255, 255, 255)), ("LA", 1, 255), ("LA", 3, (255, 255, 255)), ("RGBA", 1, 255)],
)
def test_what_is_transparent_becomes_white(source: str, channels: int, expected: object) -> None:
    made = to(save(of_mode(source), "PNG"), channels)
    assert made.getpixel((40, 6)) == expected
    assert made.getpixel((6, 6)) != expected
    half = Image.new("LA", (1, 1), (0, 128))
    assert to(save(half, "PNG"), 1).getpixel((0, 0)) == 127


def test_a_palette_with_transparency_keeps_it() -> None:
    data = save(of_mode("P"), "PNG", transparency=clear_index())
    assert to(data, 4).getpixel((40, 6))[3] == 0  # type: ignore[index]
    assert to(data, 3).getpixel((40, 6)) == (255, 255, 255)
    assert to(save(of_mode("P"), "PNG"), 4).getpixel((40, 6)) == (*GREEN, 255)


def test_transparency_keeps_no_colour_from_being_in_srgb() -> None:
    colour = (100, 150, 200)
    plain, clear = (Image.new("RGB", (1, 1), colour), Image.new("RGBA", (1, 1), (*colour, 7)))
    made = to(save(plain, "PNG", icc_profile=profile("Adobe RGB"))).getpixel((0, 0))
    assert made != colour
    kept = to(save(clear, "PNG", icc_profile=profile("Adobe RGB")), 4).getpixel((0, 0))
    assert kept == (*made, 7)  # type: ignore[misc]


def test_16_bits_stay_or_lose_their_lower_half() -> None:
    data = save(Image.fromarray(WIDE), "PNG")
    kept = to(data, 1, "uint16")
    assert np.asarray(kept).tolist() == WIDE.tolist()
    assert np.asarray(to(data, 1)).tolist() == (WIDE >> 8).tolist()
    assert np.asarray(to(data, 3))[:, :, 1].tolist() == (WIDE >> 8).tolist()


def test_8_bits_become_16_over_all_of_their_range() -> None:
    narrow = np.array([[0, 1, 128, 255]], np.uint8)
    made = to(save(Image.fromarray(narrow), "PNG"), 1, "uint16")
    assert np.asarray(made).tolist() == [[0, 257, 128 * 257, 65_535]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_before_it_is_brought_to_a_size(orientation: int) -> None:
    data = save(stored(orientation), "PNG", exif=exif(orientation))
    made = to(data, 3, size=(16, 24))
    assert made.size == (24, 16)
    assert [made.getpixel(place) for place in ((3, 3), (20, 3), (3, 12))] == [RED, GREEN, BLUE]


def test_a_size_is_height_and_width() -> None:
    data = save(picture(), "PNG")
    assert to(data, 3, size=(5, 7)).size == (7, 5)
    assert to(data, 3, size=(32, 48)).tobytes() == picture().tobytes()
    assert ImageRule(size=(5, 7)).apply(data)[1][:2] == (5, 7)


TIMEOUT = 120.0


@pytest.fixture
def ahead() -> Iterator[Ahead]:
    with closing(Ahead()) as made:
        yield made


def test_results_come_in_order_whatever_takes_long(ahead: Ahead) -> None:
    items = [(number, bytes([number]), number % 3 == 0) for number in range(100)]
    assert list(ahead.map(lambda number, data: data * 2, items)) == [
        (number, data * 2) for number, data, _ in items
    ]


def test_two_are_converted_at_the_same_time(ahead: Ahead) -> None:
    both = threading.Barrier(2, timeout=TIMEOUT)
    assert len(list(ahead.map(lambda number, data: both.wait(), [(0, b"", True), (1, b"", True)]))) == 2


def test_what_follows_a_large_one_is_converted_meanwhile(ahead: Ahead) -> None:
    small = threading.Event()

    def convert(number: int, data: bytes) -> bool:
        if number == 0:
            return small.wait(TIMEOUT)
        small.set()
        return True

    results = list(ahead.map(convert, [(0, b"", True), (1, b"", True)]))
    assert results == [(0, True), (1, True)]


def test_an_error_is_raised_in_its_place_and_the_rest_is_dropped(ahead: Ahead) -> None:
    def convert(number: int, data: bytes) -> int:
        if number == 2:
            raise ValueError("the third")
        return number

    results = ahead.map(convert, ((number, b"", True) for number in range(10)))
    assert [next(results), next(results)] == [(0, 0), (1, 1)]
    with pytest.raises(ValueError, match="the third"):
        next(results)


def test_files_wait_up_to_a_number_of_bytes(ahead: Ahead) -> None:
    read = []

    def files() -> Iterator[tuple[int, bytes, bool]]:
        for number in range(6):
            read.append(number)
            yield number, bytes(1 << 25), True

    first = next(ahead.map(lambda number, data: number, files()))
    assert first == (0, 0)
    assert read == [0, 1]


def test_what_was_handed_on_no_longer_counts_among_the_bytes_that_wait(ahead: Ahead) -> None:
    read = []

    def files() -> Iterator[tuple[int, bytes, bool]]:
        for number, size in enumerate([1 << 25, 1, 1, 1]):
            read.append(number)
            yield number, bytes(size), True

    results = ahead.map(lambda number, data: number, files())
    assert (next(results), read) == ((0, 0), [0, 1])
    assert (next(results), read) == ((1, 1), [0, 1, 2, 3])


def test_only_so_many_wait_for_the_one_in_front(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITING", 3)
    read = []

    def files() -> Iterator[tuple[int, bytes, bool]]:
        for number in range(9):
            read.append(number)
            yield number, b"", True

    results = ahead.map(lambda number, data: number, files())
    assert (next(results), read) == ((0, 0), [0, 1, 2, 3])
    assert (next(results), read) == ((1, 1), [0, 1, 2, 3, 4])


def test_what_was_not_begun_when_the_reader_stops_is_never_begun(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CORES", 1)  # two threads
    monkeypatch.setattr(module, "_WAITING", 8)
    begun, release = [], threading.Event()

    def convert(number: int, data: bytes) -> int:
        begun.append(number)
        assert number == 0 or release.wait(TIMEOUT)
        return number

    results = ahead.map(convert, ((number, b"", True) for number in range(20)))
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    release.set()
    assert list(ahead.map(convert, [(20, b"", True)])) == [(20, 20)]
    assert set(begun) <= {0, 1, 2, 20}


def test_its_threads_end_with_it() -> None:
    threads = []
    ahead = Ahead()
    assert list(ahead.map(lambda number, data: threads.append(threading.current_thread()), [(0, b"", True)]))
    ahead.close()
    assert [thread.is_alive() for thread in threads] == [False]


def test_large_images_share_their_pixels_and_one_beyond_them_is_alone() -> None:
    budget = _Budget(3 * LARGE)
    inside: list[int] = []
    with budget.share(LARGE), budget.share(LARGE):
        waits = threading.Event()

        def large() -> None:
            waits.set()
            with budget.share(10 * LARGE):
                inside.append(1)

        thread = threading.Thread(target=large, daemon=True)
        thread.start()
        assert waits.wait(TIMEOUT)
        assert inside == []
    thread.join(TIMEOUT)
    assert inside == [1]


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
