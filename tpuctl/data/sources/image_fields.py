"""Describes images that follow a rule as a feature, for every reader of images."""

from __future__ import annotations

from tpuctl.data.images.rule import ImageRule
from tpuctl.data.schema.features import Image
from tpuctl.data.source import Observations


def image_feature(rule: ImageRule, observations: Observations, name: str = "") -> Image:
    """Return the feature of images that follow a rule; `name` is that of a column among others."""
    prefix = f"{name} " if name else ""
    height, width = (observations.only_number(f"{prefix}{side}") for side in ("height", "width"))
    # TFDS takes no encoding where the channels vary
    encoding = observations.only(f"{prefix}encoding") if rule.channels else None
    shape = (height, width, rule.channels)
    return Image(shape, rule.dtype or "uint8", str(encoding) if encoding else None)
