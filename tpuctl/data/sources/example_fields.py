"""Infers the features of existing examples from some of them, and checks every record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from tpuctl.data.images.header import InvalidImage
from tpuctl.data.images.rule import ImageRule
from tpuctl.data.options import Options
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
from tpuctl.data.sources.image_fields import ImageField, image_feature, image_field
from tpuctl.data.tfrecord.example_decoding import Values, counts, decode
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.errors import UsageError

_SHARE = 0.99
"""Share of records that decides on the number of values: the others are bad."""
_PYTHON: dict[str, type] = {"bytes": bytes, "float": float, "int64": int}
_TENSORS: dict[type, str] = {bytes: "string", float: "float32", int: "int64"}
_WORDS: dict[type, str] = {bytes: "bytes", float: "floats", int: "integers"}


def infer_features(
    sample: Sequence[Mapping[str, Values]], options: Options, *, sampled: bool
) -> tuple[dict[str, Feature], dict[str, ImageField]]:
    """Return the features that most of the records have, by name in order; and those that are images.

    `sampled` tells that there are more records.
    """
    features: dict[str, Feature] = {}
    images: dict[str, ImageField] = {}
    for name in sorted({name for record in sample for name in record}):
        values = [record.get(name) or [] for record in sample]
        present = [items for items in values if items]
        if 2 * len(present) > len(values):
            length = _usual([len(items) for items in values])
            encoded = [item for items in present for item in items if isinstance(item, bytes)]
            field = image_field(encoded, options, sampled=sampled) if length == 1 else None
            features[name] = field.feature if field else _inferred(present, length)
            images |= {name: field} if field else {}
    return features, images


class ExampleChecks:
    """Checks that a record has the right kind and number of values of each feature; converts its images."""

    def __init__(self, features: Mapping[str, Feature], rules: Mapping[str, ImageRule]) -> None:
        """`rules` are those of the images that are to be looked at, by their names."""
        known = flat({name: feature for name, feature in features.items() if not isinstance(feature, Other)})
        self._kinds = [(name, example_kind(feature)) for name, feature in known.items()]
        self._numbers = [_number(feature) for feature in known.values()]
        self._rules = {name: rule for name, rule in rules.items() if isinstance(features.get(name), Image)}

    def __call__(self, record: bytes, observations: Observations) -> tuple[bytes, str]:
        """Return a record, with its images converted, and what is wrong with it; notes the images' shapes."""
        try:
            actual = counts(record, self._kinds)
        except UsageError:
            return record, "is not a tf.train.Example"
        for place, (number, varies) in enumerate(self._numbers):
            if not actual[place] or (actual[place] % number if varies else actual[place] != number):
                if why := self._explained(decode(record)):
                    return record, why
                break
        return self._with_images(record, observations)

    def final_features(
        self, features: Mapping[str, Feature], observations: Observations
    ) -> dict[str, Feature]:
        """Return the features with the heights, widths and encodings that all images had in common."""
        final = dict(features)
        for name, rule in self._rules.items():
            final[name] = image_feature(rule, observations, name)
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

    def _with_images(self, record: bytes, observations: Observations) -> tuple[bytes, str]:
        values = decode(record) if self._rules else {}
        changed = False
        for name, rule in self._rules.items():
            original = values[name][0]
            try:
                image, info = rule.apply(original if isinstance(original, bytes) else b"")
            except InvalidImage as error:
                return record, f"has an image in the feature '{name}' which {error}"
            for side, value in (("height", info.height), ("width", info.width), ("encoding", info.encoding)):
                observations.note(f"{name} {side}", value)
            changed = changed or image is not original
            values[name] = [image]
        return encode({name: items for name, items in values.items() if items}) if changed else record, ""


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
    return Text() if all(map(_is_text, present)) else Tensor("string")


def _number(feature: Feature) -> tuple[int, bool]:
    """Return how many values a record has, and whether it may also be several times as many, or none."""
    if isinstance(feature, Several):
        return _number(feature.item)[0], True
    if isinstance(feature, Audio):
        return feature.channels, True
    shape = feature.shape if isinstance(feature, Tensor) else (4,) if isinstance(feature, Box) else ()
    return prod(size for size in shape if size is not None), None in shape


def _described(count: int) -> str:
    return "nothing" if not count else f"{count} value{'s' if count > 1 else ''}"


def _is_text(values: Values) -> bool:
    try:
        return all(
            b"\0" not in value and value.decode() is not None for value in values if isinstance(value, bytes)
        )
    except UnicodeDecodeError:
        return False
