"""Infers the features of existing examples from some of them, and checks every record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from tpuctl.data.images.header import InvalidImage, inspect_image
from tpuctl.data.schema.features import (
    Audio,
    Box,
    Feature,
    Image,
    Other,
    Several,
    Tensor,
    Text,
    example_kind,
    flat,
)
from tpuctl.data.source import Observations
from tpuctl.data.tfrecord.example_decoding import Values, counts, decode
from tpuctl.errors import UsageError

_SHARE = 0.99
"""Share of records that decides on the number of values: the others are bad."""
_PYTHON: dict[str, type] = {"bytes": bytes, "float": float, "int64": int}
_TENSORS: dict[type, str] = {bytes: "string", float: "float32", int: "int64"}
_WORDS: dict[type, str] = {bytes: "bytes", float: "floats", int: "integers"}


def infer_features(sample: Sequence[Mapping[str, Values]]) -> dict[str, Feature]:
    """Return the features that most of the records have, by name in order."""
    features = {}
    for name in sorted({name for record in sample for name in record}):
        values = [record.get(name) or [] for record in sample]
        present = [items for items in values if items]
        if 2 * len(present) > len(values):
            features[name] = _inferred(present, _usual([len(items) for items in values]))
    return features


class ExampleChecks:
    """Checks that a record has the right kind and number of values of each feature."""

    def __init__(self, features: Mapping[str, Feature], *, inspect_images: bool) -> None:
        known = flat({name: feature for name, feature in features.items() if not isinstance(feature, Other)})
        self._kinds = [(name, example_kind(feature)) for name, feature in known.items()]
        self._numbers = [_number(feature) for feature in known.values()]
        self._images = {
            name: feature.shape[2]
            for name, feature in features.items()
            if inspect_images and isinstance(feature, Image)
        }

    def __call__(self, record: bytes, observations: Observations) -> str:
        """Return what is wrong with a record, empty if it is right; notes the images' shapes."""
        try:
            actual = counts(record, self._kinds)
        except UsageError:
            return "is not a tf.train.Example"
        for place, (number, varies) in enumerate(self._numbers):
            if not actual[place] or (actual[place] % number if varies else actual[place] != number):
                return self._explained(decode(record)) or self._inspect(record, observations)
        return self._inspect(record, observations)

    def final_features(
        self, features: Mapping[str, Feature], observations: Observations
    ) -> dict[str, Feature]:
        """Return the features with the heights, widths and encodings that all images had in common."""
        final = dict(features)
        for name in self._images:
            image = features[name]
            if isinstance(image, Image):
                height, width = (observations.only_number(f"{name} {side}") for side in ("height", "width"))
                encoding = observations.only(f"{name} encoding")
                shape = (height, width, image.shape[2])
                final[name] = Image(shape, image.dtype, str(encoding) if encoding else None)
        return final

    def _explained(self, record: Mapping[str, Values]) -> str:
        for (name, kind), (number, varies) in zip(self._kinds, self._numbers, strict=True):
            values = record.get(name) or []
            if len(values) % number if varies else len(values) != number:
                return f"has {_described(len(values))} in the feature '{name}', expected {number}"
            if values and not isinstance(values[0], _PYTHON[kind]):
                actual, expected = _WORDS[type(values[0])], _WORDS[_PYTHON[kind]]
                return f"has {actual} in the feature '{name}', expected {expected}"
        return ""

    def _inspect(self, record: bytes, observations: Observations) -> str:
        values = decode(record) if self._images else {}
        for name, channels in self._images.items():
            if why := _inspect(name, values[name][0], channels, observations):
                return why
        return ""


def _usual(lengths: Sequence[int]) -> int | None:
    """Return the number of values that (nearly) all records have, None where it varies."""
    length, count = Counter(lengths).most_common(1)[0]
    return length if length and count >= _SHARE * len(lengths) else None


def _inferred(present: Sequence[Values], length: int | None) -> Feature:
    first = present[0][0]
    if length != 1:
        return Tensor(_TENSORS[type(first)], (length,))
    if not isinstance(first, bytes):
        return Tensor(_TENSORS[type(first)])
    try:
        image = inspect_image(first)
        return Image((None, None, image.channels), image.dtype)
    except InvalidImage:
        return Text() if all(map(_is_text, present)) else Tensor("string")


def _number(feature: Feature) -> tuple[int, bool]:
    """Return how many values a record has, and whether it may also be several times as many, or none."""
    if isinstance(feature, Several):
        return _number(feature.item)[0], True
    if isinstance(feature, Audio):
        return feature.channels, True
    shape = feature.shape if isinstance(feature, Tensor) else (4,) if isinstance(feature, Box) else ()
    return prod(size for size in shape if size is not None), None in shape


def _inspect(name: str, data: bytes | float, channels: int | None, observations: Observations) -> str:
    try:
        image = inspect_image(data if isinstance(data, bytes) else b"")
    except InvalidImage as error:
        return f"has an image in the feature '{name}' which {error}"
    if image.channels != channels:
        return f"has {image.channels} channels in the image '{name}', expected {channels}"
    observations.note(f"{name} height", image.height)
    observations.note(f"{name} width", image.width)
    observations.note(f"{name} encoding", image.encoding)
    return ""


def _described(count: int) -> str:
    return "nothing" if not count else f"{count} value{'s' if count > 1 else ''}"


def _is_text(values: Values) -> bool:
    try:
        return all(
            b"\0" not in value and value.decode() is not None for value in values if isinstance(value, bytes)
        )
    except UnicodeDecodeError:
        return False
