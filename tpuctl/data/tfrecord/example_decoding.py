"""Decodes a tf.train.Example with protobuf's own parser.

- Makes classes of protobuf messages from tables of their fields, without generated code.

  In pools of their own: TensorFlow has the same file names in the default one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tpuctl.data.schema.features import Kind
from tpuctl.errors import UsageError

Messages = Mapping[str, tuple[tuple[str, int, bool, str], ...]]
"""Message -> fields: name, number, whether it is repeated, and a scalar type or a message of the table.

`Outer.Inner` is the entry of a map in `Outer`, which comes before it.
"""


def message_class(
    messages: Messages, name: str, *, syntax: str = "proto3", oneofs: Mapping[str, str] | None = None
) -> Any:
    """Return the class of one message; `oneofs` names the oneof that has all fields of a message.

    With the syntax `proto2` each field that is not repeated says whether it was sent.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="tensorflow/messages.proto", package="tensorflow", syntax=syntax
    )
    known: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, fields in messages.items():
        parent, _, own = path.rpartition(".")
        message = known[parent].nested_type.add(name=own) if parent else file.message_type.add(name=own)
        known[path] = message
        message.options.map_entry = bool(parent)
        oneof = (oneofs or {}).get(path)
        if oneof:
            message.oneof_decl.add(name=oneof)
        for field in fields:
            _add_field(message, messages, *field, in_oneof=bool(oneof))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))


def _add_field(
    message: descriptor_pb2.DescriptorProto, messages: Messages, name: str, number: int, repeated: bool,
    kind: str, *, in_oneof: bool,
) -> None:  # fmt: skip
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind in messages:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".tensorflow.{kind}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    if in_oneof:
        field.oneof_index = 0


_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}
"""Wire type -> bytes (protobuf.dev/programming-guides/encoding)."""
_PATH = (1, 1, 2)
"""Fields that lead from an Example to a Feature: features, an entry of the map, its value."""
_BYTES, _FLOATS = 1, 2
"""Fields of a Feature; the third has integers."""
_SINGLE = 8
_Field = tuple[int, int, memoryview]
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


# Counts the values of a serialised tf.train.Example without decoding them: each takes memory of its own.
#
# A byte of a packed list becomes a Python number of 32 bytes, so that a record's size does not bound what its
# decoding takes.


class TooManyValues(ValueError):
    """The record has more values than the caller allows."""


def check_values(record: bytes, most: int) -> None:
    """Raise TooManyValues if a record has more values than `most`, ValueError if it is damaged.

    A string, a feature and a number that is not packed count as 8 values.
    """
    count = 0
    try:
        for _, _, feature in _below(memoryview(record), _PATH):
            count += _SINGLE
            for kind, wire, values in _fields(feature):
                count = _count(kind, values, count, most) if wire == _LENGTH_DELIMITED else count + _SINGLE
            if count > most:
                raise TooManyValues
    except (IndexError, KeyError) as error:
        raise ValueError("it is damaged, or has groups, which no Example has") from error


def _count(kind: int, values: memoryview, count: int, most: int) -> int:
    for _, wire, content in _fields(values):
        if kind == _BYTES or wire != _LENGTH_DELIMITED:
            count += _SINGLE
        elif kind == _FLOATS:
            count += len(content) // 4
        else:
            count += int(np.count_nonzero(np.frombuffer(content, np.uint8) < 0x80))
        if count > most:
            raise TooManyValues
    return count


def _below(message: memoryview, path: tuple[int, ...]) -> Iterator[_Field]:
    """Yield the fields of the messages that a path of field numbers leads to."""
    number, *rest = path
    for field in _fields(message):
        if field[:2] == (number, _LENGTH_DELIMITED):
            yield from _below(field[2], tuple(rest)) if rest else (field,)


def _fields(message: memoryview) -> Iterator[_Field]:
    """Yield number, wire type and content of each field; raises IndexError or KeyError for a damaged one."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire = tag & 7
        if wire == _VARINT:
            _, end = _varint(message, at)
        elif wire == _LENGTH_DELIMITED:
            size, at = _varint(message, at)
            end = at + size
        else:
            end = at + _FIXED[wire]
        if end > len(message):
            raise IndexError
        yield tag >> 3, wire, message[at:end]
        at = end


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
