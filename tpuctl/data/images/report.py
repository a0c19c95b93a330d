"""Defines the report on the images of a source: what they are, and what becomes of them."""

from __future__ import annotations

import msgspec


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
