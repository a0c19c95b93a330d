"""Reads pictures with a mask beside each: `images/1.jpg` and `masks/1.png`, or `1.jpg` and `1_mask.png`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tpuctl.data.files.listing import Listing
from tpuctl.data.files.source_files import SourceFiles, every_file, split_of
from tpuctl.data.images.decoding import decodable
from tpuctl.data.images.header import InvalidImage, inspect_image
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Feature, Image
from tpuctl.data.source import Observations, ScanProgress, closed_on_error
from tpuctl.data.sources.annotated.fields import Content, Pictures, ValueStore, no_options
from tpuctl.data.sources.annotated.records import AnnotatedSource, MediaOrigin, Table, chosen, in_no_split
from tpuctl.data.sources.names import PICTURE_NAMES, is_mask, pair_name
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

MASK = "segmentation_mask"
"""Name of the field, as TFDS's oxford_iiit_pet has it."""
_PALETTE = 3
"""Colour type of a PNG (byte 25) whose pixels are numbers of colours."""


class _Pair(NamedTuple):
    split: str
    picture: int
    mask: int


def read_masks(tree: Tree, options: Options, progress: ScanProgress) -> AnnotatedSource:
    """Return the pictures with their masks; raises UsageError where there are none."""
    no_options(options, "A source with masks")
    if options.resize:
        raise UsageError(
            "Masks have the size of their pictures.",
            hint="Run it without --resize, and resize both in the job.",
        )
    files = every_file(tree, PICTURE_NAMES)
    bad = list(files.bad)
    pairs = _pairs(files, bad)
    if not pairs:
        raise UsageError(
            f"There are no pictures with masks in '{tree}'.",
            hint="images/1.jpg has its mask in masks/1.png; or 1.jpg in 1_mask.png.",
            file=str(tree),
        )
    pictures = chosen(files, [pair.picture for pair in pairs])
    masks = chosen(files, [pair.mask for pair in pairs])
    values = ValueStore()
    with closed_on_error(values):
        for number in range(len(pairs)):
            values.add([masks.key(number)])
        values.finish()
        origin = MediaOrigin(files, (), (pictures, masks), tuple(bad))
        splits = [(split, len(list(group))) for split, group in groupby(pair.split for pair in pairs)]
        table = Table(values, {}, splits, supervised=("image", MASK), judge=_judge)
        fields = (Pictures("image", pictures, options, progress, turns=False), Masks(masks))
        return AnnotatedSource("masks", origin, fields, table)


class Masks:
    """Grey PNG images whose pixels are numbers of classes: unchanged, or made of those of a palette."""

    name = MASK

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    def feature(self, observations: Observations) -> Feature:
        """As `MediaField.feature`."""
        height, width = (observations.only_number(f"{self.name} {side}") for side in ("height", "width"))
        return Image((height, width, 1), "uint8", "png")

    def slow(self, index: int) -> bool:
        """As `MediaField.slow`: never."""
        return False

    def content(self, data: bytes) -> Content:
        """As `MediaField.content`."""
        info = inspect_image(data)
        if info.encoding == "png" and data[25] == _PALETTE:
            return Content(_numbers(data), info.height, info.width)
        if (info.encoding, info.channels, info.dtype) != ("png", 1, "uint8"):
            channels = f"{info.channels} channel{'s' * (info.channels > 1)} of {info.dtype}"
            raise InvalidImage(
                f"is a {info.encoding.upper()} with {channels}, and a mask is a PNG with one of uint8",
                hint="Save the numbers of its classes as a grey PNG.",
            )
        return Content(data, info.height, info.width)

    def note(self, content: Content, observations: Observations) -> None:
        """As `MediaField.note`."""
        observations.note(f"{self.name} height", content.height)
        observations.note(f"{self.name} width", content.width)


def _numbers(data: bytes) -> bytes:
    """Return a PNG of the numbers of a palette's colours, as PASCAL VOC has classes."""
    from PIL import Image as images  # noqa: PLC0415  few masks have a palette

    with decodable(data, None) as image:
        numbers = np.asarray(image)
    stream = io.BytesIO()
    images.fromarray(numbers.astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def _pairs(files: SourceFiles, bad: list[BadRecord]) -> list[_Pair]:
    """Return the pairs in the order of split and path; what has no partner becomes bad."""
    pictures: dict[str, int] = {}
    masks: dict[str, int] = {}
    for number in range(len(files)):
        path = files.name(number)
        of_kind = masks if is_mask(path) else pictures
        first = of_kind.setdefault(pair_name(path), number)
        if first != number:
            bad.append(BadRecord(path, f"has the same name as '{files.name(first)}'"))
    bad += [
        BadRecord(files.name(number), "has no mask") for key, number in pictures.items() if key not in masks
    ]
    bad += [
        BadRecord(files.name(number), "is the mask of no picture")
        for key, number in masks.items()
        if key not in pictures
    ]
    pairs = sorted(
        _Pair(split_of(files.name(number)), number, masks[key])
        for key, number in pictures.items()
        if key in masks
    )
    if pairs and not pairs[0].split and pairs[-1].split:
        raise in_no_split(files.name(pairs[0].picture))
    return pairs


def _judge(contents: Sequence[Content], values: Sequence[Value]) -> str:
    picture, mask = contents
    if (picture.height, picture.width) == (mask.height, mask.width):
        return ""
    sizes = f"{mask.width} × {mask.height} pixels, and its picture {picture.width} × {picture.height}"
    return f"has {sizes}"
