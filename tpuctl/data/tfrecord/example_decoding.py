"""Decodes a tf.train.Example with protobuf's own parser."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tpuctl.data.schema.features import Kind
from tpuctl.data.tfrecord.value_counts import TooManyValues, check_values
from tpuctl.errors import UsageError

MOST_VALUES = 1 << 26
"""Values of a record: a gigabyte when they are decoded."""
_SMALL = 8 << 20
"""Bytes of a record whose values are not counted before they are decoded."""
Values = list[bytes] | list[int] | list[float]

# tensorflow/core/example/{feature,example}.proto: message -> (field, number, repeated, scalar or message)
_MESSAGES: dict[str, tuple[tuple[str, int, bool, str], ...]] = {
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
    """The message class, in a pool of its own: TensorFlow has the same file names in the default one."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file_descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def _file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="tensorflow/core/example/example.proto", package="tensorflow", syntax="proto3"
    )
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, fields in _MESSAGES.items():
        parent, _, name = path.rpartition(".")
        message = messages[parent].nested_type.add(name=name) if parent else file.message_type.add(name=name)
        messages[path] = message
        message.options.map_entry = bool(parent)
        if path in _ONEOFS:
            message.oneof_decl.add(name=_ONEOFS[path])
        for field in fields:
            _add_field(message, *field, in_oneof=path in _ONEOFS)
    return file


def _add_field(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    repeated: bool,
    kind: str,
    *,
    in_oneof: bool,
) -> None:
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind in _MESSAGES:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".tensorflow.{kind}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    if in_oneof:
        field.oneof_index = 0
