"""Decodes a tf.train.Example with protobuf's own parser."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from tpuctl.data.schema.features import Kind
from tpuctl.data.tfrecord.message_classes import Messages, message_class
from tpuctl.data.tfrecord.value_counts import TooManyValues, check_values
from tpuctl.errors import UsageError

MOST_VALUES = 1 << 26
"""Values of a record: a gigabyte when they are decoded."""
_SMALL = 8 << 20
"""Bytes of a record whose values are not counted before they are decoded."""
Values = list[bytes] | list[int] | list[float]

# tensorflow/core/example/{feature,example}.proto: message -> (field, number, repeated, scalar or message)
_MESSAGES: Messages = {
    "BytesList": (("value", 1, True, "bytes"),),
    "FloatList": (("value", 1, True, "float"),),
    "Int64List": (("value", 1, True, "int64"),),
    "Feature": (
        ("bytes_list", 1, False, "BytesList"),
        ("float_list", 2, False, "FloatList"),
        ("int64_list", 3, False, "Int64List"),
    ),
    "Features": (("feature", 1, True, "Features.FeatureEntry"),),
    "Features.FeatureEntry": (("key", 1, False, "string"), ("value", 2, False, "Feature")),
    "Example": (("features", 1, False, "Features"),),
}
_ONEOFS = {"Feature": "kind"}


def decode(record: bytes) -> dict[str, Values]:
    """Return the values of a serialised Example, by name in order; raises UsageError if it is none."""
    features = _features(record)
    return {name: _items(features[name]) for name in sorted(features)}


def counts(record: bytes, kinds: Sequence[tuple[str, Kind]]) -> list[int]:
    """Return how many values of its kind each feature has, faster than `decode`; raises UsageError like that.

    There are none where the feature has another kind, or is not there.
    """
    features = _features(record)
    return [len(getattr(features[name], f"{kind}_list").value) for name, kind in kinds]


def _features(record: bytes) -> Any:
    example = _example_class()()
    try:
        if len(record) > _SMALL:
            check_values(record, MOST_VALUES)
        example.ParseFromString(record)
    except TooManyValues as error:
        raise UsageError(
            f"The record has more than {MOST_VALUES} values.",
            hint="Keep large arrays as bytes, which TensorFlow reads with tf.io.decode_raw.",
        ) from error
    except (DecodeError, ValueError) as error:
        raise UsageError(
            "The record is not a tf.train.Example.", hint="tpuctl reads TFRecords of tf.train.Example only."
        ) from error
    return example.features.feature


def _items(feature: Any) -> Values:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


@cache
def _example_class() -> Any:
    return message_class(_MESSAGES, "Example", oneofs=_ONEOFS)
