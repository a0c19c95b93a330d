"""tf.train.Example without TensorFlow: one record as named lists of bytes, integers or floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tpuctl.errors import UsageError

Value = bytes | str | int | float | Sequence[bytes] | Sequence[str] | Sequence[int] | Sequence[float]
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
# type of a value -> the list it goes into, and the conversion on the way
_LISTS: dict[type, tuple[str, Callable[[Any], object]]] = {
    bytes: ("bytes_list", bytes),
    str: ("bytes_list", str.encode),
    int: ("int64_list", int),
    bool: ("int64_list", int),
    float: ("float_list", float),
}


def encode(values: Mapping[str, Value]) -> bytes:
    """Return the serialised Example of `values`: always the same bytes for the same values.

    bytes and str become a bytes_list, int an int64_list, float a float_list (32 bits); a sequence of one of
    them becomes a list of that length. A list that mixes types, or an empty one, raises TypeError.
    """
    example = _example_class()()
    for name, value in values.items():
        items = [value] if isinstance(value, (bytes, str, int, float)) else list(value)
        kind, convert = _list_kind(name, items)
        getattr(example.features.feature[name], kind).value.extend(map(convert, items))
    serialised: bytes = example.SerializeToString(deterministic=True)
    return serialised


def decode(record: bytes) -> dict[str, Values]:
    """Return the values of a serialised Example, by name in order; raises UsageError if it is none."""
    example = _example_class()()
    try:
        example.ParseFromString(record)
    except DecodeError as error:
        raise UsageError(
            "The record is not a tf.train.Example.", hint="tpuctl reads TFRecords of tf.train.Example only."
        ) from error
    features = example.features.feature
    return {name: _items(features[name]) for name in sorted(features)}


def _list_kind(name: str, items: Sequence[object]) -> tuple[str, Callable[[Any], object]]:
    types = {type(item) for item in items}
    if len(types) != 1 or not types <= _LISTS.keys():
        raise TypeError(f"feature {name!r} needs values of one type: bytes, str, int or float")
    return _LISTS[types.pop()]


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
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, fields in _MESSAGES.items():
        parent, _, name = path.rpartition(".")
        message = made[parent].nested_type.add(name=name) if parent else file.message_type.add(name=name)
        made[path] = message
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
