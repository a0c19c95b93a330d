"""Defines the rule that all images of a dataset follow, and counts images to decide on it.

Every reader of images follows it: it counts the headers of the images it has in `ImageCounts`, whose `rule`
then brings each image to the dataset's channels and bits. A file stays as it is where nothing has to change.
"""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from tpuctl.data.images.decoding import TOO_LARGE, check_size, decodable, shrunk
from tpuctl.data.images.header import (
    FORMATS,
    MOST_PIXELS,
    UPRIGHT,
    ImageInfo,
    InvalidImage,
    inspect_image,
    look,
)
from tpuctl.data.images.profiles import changes_colours
from tpuctl.data.images.report import ImageReport, comment, ordered
from tpuctl.data.options import Channels

if TYPE_CHECKING:
    from PIL import Image


QUALITY = 95
_WHITE = 255
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_CLEAR = ("RGBA", "LA")
_PLAIN = {
    "1": "L", "YCbCr": "RGB", "HSV": "RGB", "RGBX": "RGB", "RGBa": "RGBA", "La": "LA", "PA": "RGBA",
    "I;16": "I", "I;16B": "I",
}  # fmt: skip
"""Modes that cannot be shrunk or turned into others well -> the mode used instead."""
NAMES = {1: "grey", 2: "grey with transparency", 3: "RGB", 4: "RGBA"}
"""Channels -> what such an image is called."""
TURNED = "is turned by its EXIF orientation, and what is drawn in it may not be"
HINTS = {TURNED: "Save it upright, without EXIF data, and draw again what is drawn in it"}
"""Why an image is bad by the rule -> what to do."""


class ImageKind(NamedTuple):
    """What decides on the conversion of an image; few kinds occur in a dataset of millions."""

    channels: int
    dtype: str
    encoding: str
    changes: tuple[str, ...] = ()
    bad: str = ""
    """Why it cannot be used, without the figures of this one image."""
    large: bool = False
    """Whether it has more pixels than are decoded: it can be used as it is alone."""


class ImageRule(msgspec.Struct, frozen=True):
    """What the images of a dataset, or of a column, have in common."""

    channels: int | None = 3
    """None: as many as each image has."""
    dtype: str | None = "uint8"
    """`uint8` or `uint16`; None: that of each image."""
    size: tuple[int, int] | None = None
    """Height and width; None: those of each image."""
    turns: bool = True
    """Whether an image may be turned upright: boxes and masks belong to one of the two, nobody says which."""

    def reasons(self, kind: ImageInfo | ImageKind) -> tuple[str, ...]:
        """Return why an image has to change, `resized` aside; empty where it stays as it is."""
        reasons = kind.changes
        if self.channels not in (None, kind.channels):
            reasons += (f"to {self.channels} channel{'s' * (self.channels != 1)}",)
        if self.dtype and self.dtype != kind.dtype:
            reasons += (f"to {self.dtype.removeprefix('uint')} bits",)
        return reasons

    def why_bad(self, kind: ImageKind) -> str:
        """Return why an image of a kind cannot be used; empty if it can."""
        if kind.bad:
            return kind.bad
        if not self.turns and UPRIGHT in kind.changes:
            return TURNED
        return TOO_LARGE if kind.large and (self.size or self.reasons(kind)) else ""

    def apply(self, data: bytes) -> tuple[bytes, ImageInfo]:
        """Return an image of any format as the dataset has it, and its shape; raises InvalidImage."""
        info = look(data)
        if not self.turns and UPRIGHT in info.changes:
            raise InvalidImage(TURNED, hint=HINTS[TURNED])
        why = self.reasons(info)
        if not why and not self.size:
            return data, info
        channels, dtype = self.channels or info.channels, self.dtype or info.dtype
        final = converted(data, info, Goal(channels, dtype, self.size), why)
        return final, inspect_image(final)

    def check(self, info: ImageInfo) -> None:
        """Raise InvalidImage for an image that this rule cannot decode, by its header."""
        if self.size or self.reasons(info):
            check_size(info.width, info.height)


def kind_of(info: ImageInfo) -> ImageKind:
    """Return the kind of an image."""
    large = info.width * info.height > MOST_PIXELS
    return ImageKind(info.channels, info.dtype, info.encoding, info.changes, large=large)


def bad_kind(error: InvalidImage) -> ImageKind:
    """Return the kind of an image that cannot be used."""
    return ImageKind(0, "", "", (), error.group)


class ImageCounts:
    """How many images there are of each kind."""

    def __init__(self) -> None:
        self._kinds: Counter[ImageKind] = Counter()

    def add(self, kind: ImageKind, count: int = 1) -> None:
        """Count images of a kind."""
        self._kinds[kind] += count

    def add_image(self, data: bytes) -> None:
        """Count an encoded image."""
        try:
            self.add(kind_of(look(data)))
        except InvalidImage as error:
            self.add(bad_kind(error))

    @property
    def total(self) -> int:
        """All of them."""
        return self._kinds.total()

    @property
    def images(self) -> int:
        """Those that are not bad."""
        return sum(self._good().values())

    def rule(self, channels: Channels | None, size: tuple[int, int] | None = None) -> ImageRule:
        """Return the rule for these images: the channels that most of them have, or those the user gives."""
        if channels == "keep":
            return ImageRule(None, self._only_dtype(), size)
        number = channels or self._most_channels()
        return ImageRule(number, self._most_dtype() if number == 1 else "uint8", size)

    def report(self, rule: ImageRule, *, sampled: bool = False) -> ImageReport:
        """Return what these images are, and what becomes of them by a rule."""
        reasons: Counter[str] = Counter()
        converted_images = 0
        for kind, count in self._good().items():
            if rule.why_bad(kind):
                continue
            why = rule.reasons(kind)
            reasons.update(dict.fromkeys(why, count))
            converted_images += count if why else 0
        bad: Counter[str] = Counter()
        for kind, count in self._kinds.items():
            why_bad = rule.why_bad(kind)
            bad.update({why_bad: count} if why_bad else {})
        return ImageReport(
            self.total,
            ordered(Counter({NAMES[channels]: count for channels, count in self._channels().items()})),
            rule.channels,
            converted_images,
            ordered(reasons),
            bad.total(),
            ordered(bad),
            sampled,
        )

    def _good(self) -> dict[ImageKind, int]:
        return {kind: count for kind, count in self._kinds.items() if not kind.bad}

    def _channels(self) -> Counter[int]:
        counts: Counter[int] = Counter()
        for kind, count in self._good().items():
            counts[kind.channels] += count
        return counts

    def _most_channels(self) -> int:
        """Return the channels that most images have: 3 if as many have others, 4 where some have 2."""
        counts = self._channels()
        if not counts:
            return 3
        most = [channels for channels, count in counts.items() if count == max(counts.values())]
        channels = most[0] if len(most) == 1 else 3
        return channels if channels != 2 or len(counts) == 1 else 4

    def _most_dtype(self) -> str:
        wide = sum(count for kind, count in self._good().items() if kind.dtype == "uint16")
        return "uint16" if 2 * wide > self.images else "uint8"

    def _only_dtype(self) -> str:
        dtypes = {kind.dtype for kind in self._good()}
        return dtypes.pop() if len(dtypes) == 1 else "uint8"


# Converts an image to what a dataset needs: upright, in sRGB, with its channels and bits, as PNG or JPEG.
#
# What was lossy before, as photographs are (JPEG, WebP, HEIC, AVIF, JPEG 2000), becomes a JPEG of quality 95
# with 4:2:0 chroma, unless it has transparency; everything else a PNG, without loss. The same bytes come out
# for the same version of Pillow. A comment in the result says why it was converted.


class Goal(NamedTuple):
    """What an image is brought to."""

    channels: int
    dtype: str
    size: tuple[int, int] | None
    """Height and width; None: as it is."""


def converted(data: bytes, info: ImageInfo, goal: Goal, why: tuple[str, ...]) -> bytes:
    """Return the image `data`, which `info` describes, as a PNG or JPEG; raises InvalidImage."""
    with decodable(data, goal.size) as image:
        image.load()  # Pillow turns a TIFF upright itself, and says so only then
        picture = _upright(_coloured(_sized(image, goal.size)), image)
        if goal.size and picture.size != goal.size[::-1]:
            picture = _resized(picture, goal.size)
        final = _with_channels(picture, goal)
        if FORMATS[info.encoding].lossy and final.mode in ("L", "RGB") and not _lossless(data, info):
            return _jpeg(final, why)
        return _png(final, why)


def _sized(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    """Return an image of a plain mode; a large one that is to become small at a fraction."""
    modes = {**_PLAIN, "P": _palette_mode(image)}
    if size:
        image = shrunk(image, size if not _lies(image) else size[::-1], modes)
    if image.mode in modes:
        image = image.convert(modes[image.mode])
    return image


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  most uploads decode nothing

    height, width = size
    return image.resize((width, height), images.Resampling.LANCZOS)


def _coloured(image: Image.Image) -> Image.Image:
    """Return the image in sRGB; of CMYK without a profile in the plain colours of its inks."""
    profile = image.info.get("icc_profile") or b""
    if image.mode in ("RGB", "RGBA", "CMYK") and changes_colours(profile):
        image = _in_srgb(image, profile)
    if image.mode == "LAB":
        return _from_lab(image)
    return image.convert("RGB") if image.mode == "CMYK" else image


def _in_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    from PIL import ImageCms  # noqa: PLC0415  few images have another profile

    mode = "RGBA" if image.mode == "RGBA" else "RGB"
    try:
        own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        changed = ImageCms.profileToProfile(image, own, ImageCms.createProfile("sRGB"), outputMode=mode)
    except (ImageCms.PyCMSError, OSError):
        return image  # a damaged profile, which all readers pass over
    return changed or image


def _from_lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms  # noqa: PLC0415  as above

    profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    return ImageCms.profileToProfile(image, *profiles, outputMode="RGB") or image


def _upright(image: Image.Image, original: Image.Image) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  as above

    turns = (
        images.Transpose.FLIP_LEFT_RIGHT,
        images.Transpose.ROTATE_180,
        images.Transpose.FLIP_TOP_BOTTOM,
        images.Transpose.TRANSPOSE,
        images.Transpose.ROTATE_270,
        images.Transpose.TRANSVERSE,
        images.Transpose.ROTATE_90,
    )
    orientation = _orientation(original)
    return image.transpose(turns[orientation - 2]) if orientation > 1 else image


def _orientation(image: Image.Image) -> int:
    value = image.getexif().get(0x0112, 1)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _lies(image: Image.Image) -> bool:
    """Tell whether its height becomes its width."""
    return _orientation(image) >= 5


def _with_channels(image: Image.Image, goal: Goal) -> Image.Image:
    """Return the image with the channels of the goal; what is transparent becomes white if they have none."""
    if image.mode == "I":
        image = _narrow(image, goal)
        if goal.dtype == "uint16":
            return image
    elif goal.dtype == "uint16":
        return _widened(_with_channels(image, goal._replace(dtype="uint8")))
    mode = _MODES[goal.channels]
    if image.mode in _CLEAR and mode not in _CLEAR:
        image = _on_white(image.convert("RGBA") if mode == "RGB" else image)
    return image if image.mode == mode else image.convert(mode)


def _on_white(image: Image.Image) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  as above

    opaque = "RGB" if image.mode == "RGBA" else "L"
    page = images.new(opaque, image.size, (_WHITE,) * len(opaque) if opaque == "RGB" else _WHITE)
    page.paste(image.convert(opaque), mask=image.getchannel("A"))
    return page


def _narrow(image: Image.Image, goal: Goal) -> Image.Image:
    """Return 16 bits a pixel, in a mode of 32, in a mode of 16, or of 8."""
    from PIL import Image as images  # noqa: PLC0415  as above

    if goal.dtype == "uint16":
        return image.convert("I;16")
    return images.fromarray((np.asarray(image) >> 8).clip(0, _WHITE).astype(np.uint8))


def _widened(image: Image.Image) -> Image.Image:
    from PIL import Image as images  # noqa: PLC0415  as above

    return images.fromarray(np.asarray(image).astype(np.uint16) * 257)


def _palette_mode(image: Image.Image) -> str:
    return "RGBA" if "transparency" in image.info else "RGB"


def _lossless(data: bytes, info: ImageInfo) -> bool:
    return info.encoding == "WebP" and data[12:16] == b"VP8L"


def _jpeg(image: Image.Image, why: tuple[str, ...]) -> bytes:
    stream = io.BytesIO()
    image.info.clear()  # what is said of the original: its profile, its orientation
    image.save(stream, "JPEG", quality=QUALITY, subsampling="4:2:0", comment=comment(why))
    return stream.getvalue()


def _png(image: Image.Image, why: tuple[str, ...]) -> bytes:
    from PIL.PngImagePlugin import PngInfo  # noqa: PLC0415  as above

    stream, notes = io.BytesIO(), PngInfo()
    if text := comment(why):
        notes.add_text("Comment", text)
    image.info.clear()
    image.save(stream, "PNG", pnginfo=notes)
    return stream.getvalue()
