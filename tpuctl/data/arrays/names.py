"""Infers field and split from an array's name: `x_train`, `test_labels`, `t10k-images-idx3-ubyte`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from tpuctl.data.arrays.source import Array, Block
from tpuctl.data.files.source_files import SPLIT_WORDS, words
from tpuctl.data.images.raw_png import CHANNELS
from tpuctl.errors import UsageError

_ENDING = re.compile(r"npy|npz|gz|ubyte|idx\d?")
"""Words after which a name says the format: `points-idx2-short`."""
_INPUTS = ("x", "data", "img", "imgs", "image", "images", "input", "inputs")
_TARGETS = ("y", "label", "labels", "target", "targets", "class", "classes")


class NamedArray(NamedTuple):
    """An array and its name; the arrays of one group and split belong together."""

    group: str
    split: str
    name: str
    array: Array


def pair(arrays: Iterable[NamedArray]) -> list[Block]:
    """Return the blocks that arrays form, by split; raises UsageError where two would be the same field."""
    blocks: dict[tuple[str, str], dict[str, Array]] = {}
    for group, split, name, array in arrays:
        named = list(takewhile(lambda word: not _ENDING.fullmatch(word), words(name)))
        splits = {SPLIT_WORDS[word] for word in named if word in SPLIT_WORDS}
        own = split or (splits.pop() if len(splits) == 1 else "")
        fields = blocks.setdefault((own, group), {})
        field = _field_name([word for word in named if word not in SPLIT_WORDS], array)
        if field in fields:
            raise UsageError(
                f"'{fields[field].where}' and '{array.where}' would both be the {field} of the same records.",
                hint="Remove one of them, or name them train and test.",
            )
        fields[field] = array
    if len({split == "" for split, _ in blocks}) > 1:
        lost = blocks[min(blocks)]
        raise UsageError(
            f"The name of '{next(iter(lost.values())).where}' says no split, and others do.",
            hint="Name all arrays after their split, such as x_train and x_test, or none.",
        )
    return [Block(split, blocks[split, group]) for split, group in sorted(blocks)]


def _field_name(named: list[str], array: Array) -> str:
    if any(word in _TARGETS for word in named):
        return "label"
    if any(word in _INPUTS for word in named):
        return "image" if _is_image(array) else named[-1] if named[-1] in _INPUTS else "_".join(named)
    return "_".join(named) or ("image" if _is_image(array) else "value")


def _is_image(array: Array) -> bool:
    pixels = array.shape[1:]
    return array.dtype == np.uint8 and (len(pixels) == 2 or (len(pixels) == 3 and pixels[2] in CHANNELS))
