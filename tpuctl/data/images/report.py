"""Defines the report on the images of a source: what they are, and what becomes of them.

- Writes into a converted image why it was converted, and reads it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

_PREFIX = "Converted by tpuctl: "
_SEARCHED = 4096
"""Bytes of an image in which its comment is: before the first pixel."""


def comment(why: tuple[str, ...]) -> str:
    """Return the comment of an image that was converted for these reasons; empty without one."""
    return _PREFIX + ", ".join(why) if why else ""


def conversion_of(data: bytes) -> str:
    """Return why an image in a dataset was converted, empty if its file is as the user had it."""
    head = data[:_SEARCHED]
    begin = head.find(_PREFIX.encode())
    if begin < 0:
        return ""
    size = int.from_bytes(head[begin - 2 : begin], "big") - 2  # the length of a comment in a JPEG
    if head.startswith(b"\x89PNG"):
        size = int.from_bytes(head[begin - 16 : begin - 12], "big") - len(b"Comment\0")
    text = head[begin + len(_PREFIX) : begin + max(size, 0)]
    return text.decode("ascii", "replace")


class ImageReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a source's images are, and what becomes of them: for the plan."""

    images: int
    kinds: dict[str, int]
    """`RGB`, `grey`: how many have these channels, the most frequent first; bad ones are in none."""
    channels: int | None
    """Of the dataset; None where each image keeps its own."""
    converted: int = 0
    reasons: dict[str, int] = {}
    """Why images are converted: an image may have several reasons."""
    bad: int = 0
    bad_reasons: dict[str, int] = {}
    sampled: bool = False
    """Whether only some of the source's images were looked at."""

    @property
    def summary(self) -> str:
        """What the images are and become: `2 pictures: 1 RGB, 1 grey; 1 will be converted to 3 channels`."""
        of_kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items())
        noun = f"picture{'s' * (self.images != 1)}{' looked at' * self.sampled}"
        parts = [f"{self.images:,} {noun}: {of_kinds}" if of_kinds else f"{self.images:,} {noun}"]
        if self.converted:
            parts.append(f"{self.converted:,} will be converted{self._why}")
        if self.bad:
            of_reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.bad_reasons.items())
            parts.append(f"{self.bad:,} cannot be used: {of_reasons}")
        return "; ".join(parts)

    @property
    def _why(self) -> str:
        if len(self.reasons) == 1:
            return f" {next(iter(self.reasons))}"
        return ": " + ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.items())


def merged(reports: Sequence[ImageReport]) -> ImageReport | None:
    """Return one report on the images of several fields; None without any."""
    if len(reports) < 2:
        return reports[0] if reports else None
    channels = {report.channels for report in reports}
    return ImageReport(
        images=sum(report.images for report in reports),
        kinds=_sum([report.kinds for report in reports]),
        channels=channels.pop() if len(channels) == 1 else None,
        converted=sum(report.converted for report in reports),
        reasons=_sum([report.reasons for report in reports]),
        bad=sum(report.bad for report in reports),
        bad_reasons=_sum([report.bad_reasons for report in reports]),
        sampled=any(report.sampled for report in reports),
    )


def _sum(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for numbers in counts:
        total.update(numbers)
    return ordered(total)


def ordered(counts: Counter[str]) -> dict[str, int]:
    """Return counts, the largest first, and those that are the same by their names."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
