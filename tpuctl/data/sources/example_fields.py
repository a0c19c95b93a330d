"""What the features of existing examples are, inferred from some of them, and whether a record has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tpuctl.data.images.header import InvalidImage, inspect_image
from tpuctl.data.schema.features import Feature, Image, Other, Tensor, Text, example_kind
from tpuctl.data.source import Observations
from tpuctl.data.tfrecord.example_decoding import Values, counts, decode
from tpuctl.errors import UsageError

_SHARE = 0.99
"""Of the records that agree, the others are bad."""
_PYTHON: dict[str, type] = {"bytes": bytes, "float": float, "int64": int}
_TENSORS: dict[type, str] = {bytes: "string", float: "float32", int: "int64"}
_WORDS: dict[type, str] = {bytes: "bytes", float: "floats", int: "integers"}


def infer_fields(sample: Sequence[Mapping[str, Values]]) -> dict[str, Feature]:
    """Return the features that most of the records have, by name in order."""
    found = {}
    for name in sorted({name for one in sample for name in one}):
        every = [one.get(name) or [] for one in sample]
        there = [one for one in every if one]
        if 2 * len(there) > len(every):
            found[name] = _inferred(there, _usual([len(one) for one in every]))
    return found


class Checks:
    """What every record must have: of each feature the right kind and number of values."""

    def __init__(self, features: Mapping[str, Feature], *, pictures: bool) -> None:
        """With `pictures`, images are looked into too."""
        known = {name: one for name, one in features.items() if not isinstance(one, Other)}
        self._kinds = [(name, example_kind(one)) for name, one in known.items()]
        self._numbers = [_number(one) for one in known.values()]
        self._images = {
            name: one.shape[2] for name, one in features.items() if pictures and isinstance(one, Image)
        }

    def __call__(self, record: bytes, seen: Observations) -> str:
        """Return what is wrong with a record, and nothing if it is right; notes the images' shapes."""
        try:
            found = counts(record, self._kinds)
        except UsageError:
            return "is not a tf.train.Example"
        for place, (number, varies) in enumerate(self._numbers):
            if not found[place] or (found[place] % number if varies else found[place] != number):
                return self._explained(decode(record)) or self._look(record, seen)
        return self._look(record, seen)

    def _explained(self, values: Mapping[str, Values]) -> str:
        for (name, kind), (number, varies) in zip(self._kinds, self._numbers, strict=True):
            found = values.get(name) or []
            if len(found) % number if varies else len(found) != number:
                return f"has {_values(len(found))} in the feature '{name}', and {number} are wanted"
            if found and not isinstance(found[0], _PYTHON[kind]):
                here, wanted = _WORDS[type(found[0])], _WORDS[_PYTHON[kind]]
                return f"has {here} in the feature '{name}', and {wanted} are wanted"
        return ""

    def _look(self, record: bytes, seen: Observations) -> str:
        values = decode(record) if self._images else {}
        for name, channels in self._images.items():
            if why := _look(name, values[name][0], channels, seen):
                return why
        return ""

    def final_features(self, features: Mapping[str, Feature], seen: Observations) -> dict[str, Feature]:
        """Return the features with the heights, widths and encodings that all images had in common."""
        found = dict(features)
        for name in self._images:
            image = features[name]
            height, width, encoding = (
                seen.only(f"{name} {what}") for what in ("height", "width", "encoding")
            )
            if isinstance(image, Image):
                shape = (
                    height if isinstance(height, int) else None,
                    width if isinstance(width, int) else None,
                )
                found[name] = Image(
                    (*shape, image.shape[2]), image.dtype, str(encoding) if encoding else None
                )
        return found


def _usual(lengths: Sequence[int]) -> int | None:
    """Return the number of values that (nearly) all records have, None where it varies."""
    length, count = Counter(lengths).most_common(1)[0]
    return length if length and count >= _SHARE * len(lengths) else None


def _inferred(there: Sequence[Values], length: int | None) -> Feature:
    first = there[0][0]
    if length != 1:
        return Tensor(_TENSORS[type(first)], (length,))
    if not isinstance(first, bytes):
        return Tensor(_TENSORS[type(first)])
    try:
        picture = inspect_image(first)
        return Image((None, None, picture.channels), picture.dtype)
    except InvalidImage:
        return Text() if all(map(_is_text, there)) else Tensor("string")


def _number(feature: Feature) -> tuple[int, bool]:
    """Return how many values a record has, and whether it may also be several times as many, or none."""
    shape = feature.shape if isinstance(feature, Tensor) else ()
    return prod(size for size in shape if size is not None), None in shape


def _look(name: str, data: Any, channels: int, seen: Observations) -> str:
    try:
        picture = inspect_image(data)
    except InvalidImage as error:
        return f"has an image in the feature '{name}' which {error}"
    if picture.channels != channels:
        return f"has {picture.channels} channels in the image '{name}', and {channels} are wanted"
    seen.note(f"{name} height", picture.height)
    seen.note(f"{name} width", picture.width)
    seen.note(f"{name} encoding", picture.encoding)
    return ""


def _values(count: int) -> str:
    return "nothing" if not count else f"{count} value{'s' if count > 1 else ''}"


def _is_text(values: Values) -> bool:
    try:
        return all(b"\0" not in one and one.decode() is not None for one in values if isinstance(one, bytes))
    except UnicodeDecodeError:
        return False
