"""Defines the rule that all images of a dataset follow, and counts images to decide on it.

Every reader of images follows it: it counts the headers of the images it has in `ImageCounts`, whose `rule`
then brings each image to the dataset's channels and bits. A file stays as it is where nothing has to change.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from tpuctl.data.images.conversion import Goal, converted
from tpuctl.data.images.decoding import TOO_LARGE, check_size
from tpuctl.data.images.formats import MOST_PIXELS, look
from tpuctl.data.images.header import UPRIGHT, ImageInfo, InvalidImage, inspect_image
from tpuctl.data.images.report import ImageReport, ordered
from tpuctl.data.options import Channels

NAMES = {1: "grey", 2: "grey with transparency", 3: "RGB", 4: "RGBA"}
"""Channels -> what such an image is called."""
RESIZED = "resized"
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
