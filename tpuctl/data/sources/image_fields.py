"""Decides which fields of a source hold images, and by which rule: for every reader of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from tpuctl.data.images.ahead import Ahead
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.images.report import ImageReport, merged
from tpuctl.data.images.rule import ImageCounts, ImageRule
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Image
from tpuctl.data.source import Observations
from tpuctl.data.tables.columns import Column, InvalidValue, check_no_images, within_memory

_TRIED = 16
"""Values of a field that holds no images if none of these is one."""


class ImageField(NamedTuple):
    """The rule for the images of a field, and what they are."""

    rule: ImageRule
    report: ImageReport

    @property
    def feature(self) -> Image:
        """The feature, as far as known before the conversion."""
        return image_feature(self.rule, Observations())


def image_field(values: Iterable[bytes], options: Options, *, sampled: bool) -> ImageField | None:
    """Return the field with these values if at least half are images; `sampled`: the source has more."""
    counts = ImageCounts()
    for number, value in enumerate(values, 1):
        counts.add_image(value)
        if number == _TRIED and not counts.images:
            return None
    if not counts.images or 2 * counts.images < counts.total:
        return None
    rule = counts.rule(options.channels, options.resize)
    return ImageField(rule, counts.report(rule, sampled=sampled))


def image_column(name: str, field: ImageField, content: Callable[[object], bytes]) -> Column[object]:
    """Return the column of a field; `content` returns the encoded image in a cell, such as one of Arrow."""

    def convert(cell: object) -> bytes:
        try:
            return field.rule.apply(content(cell))[0]
        except InvalidImage as error:
            raise InvalidValue(str(error)) from error

    def convert_many(cells: Any) -> list[bytes]:
        with closing(Ahead()) as ahead:
            items = ((0, cell, True) for cell in cells.to_pylist())
            return within_memory(image for _, image in ahead.map(lambda _, cell: convert(cell), items))

    slow = field.report.converted or field.rule.size
    return Column(name, field.feature, convert, "images", convert_many if slow else None)


def image_feature(rule: ImageRule, observations: Observations, name: str = "") -> Image:
    """Return the feature of images that follow a rule; `name` is that of a column among others."""
    prefix = f"{name} " if name else ""
    height, width = (observations.only_number(f"{prefix}{side}") for side in ("height", "width"))
    # TFDS takes no encoding where the channels vary
    encoding = observations.only(f"{prefix}encoding") if rule.channels else None
    shape = (height, width, rule.channels)
    return Image(shape, rule.dtype or "uint8", str(encoding) if encoding else None)


def report_of(fields: Sequence[ImageField], options: Options, source: str) -> ImageReport | None:
    """Return what all images of a source are; raises UsageError for options of images if it has none."""
    if not fields:
        check_no_images(options, source)
    return merged([field.report for field in fields])
