"""Decodes the scalars of an event: numbers as TensorFlow 1 and PyTorch write them, or tensors of one number.

Source: tensorflow/core/util/event.proto, tensorflow/core/framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from tpuctl.data.tfrecord.message_classes import Messages, message_class

LARGEST_EVENT = 64 << 10
"""Bytes of an event that is decoded: larger ones hold images, graphs or text, and no scalars."""
LONGEST_TAG = 256

# only fields that a scalar has; a field of one name is not decoded in another event
_MESSAGES: Messages = {
    "TensorProto": (
        ("dtype", 1, False, "int32"),
        ("tensor_content", 4, False, "bytes"),
        ("float_val", 5, True, "float"),
        ("double_val", 6, True, "double"),
        ("int_val", 7, True, "int32"),
        ("int64_val", 10, True, "int64"),
        ("half_val", 13, True, "int32"),
    ),
    "Value": (
        ("tag", 1, False, "bytes"),
        ("simple_value", 2, False, "float"),
        ("tensor", 8, False, "TensorProto"),
    ),
    "Summary": (("value", 1, True, "Value"),),
    "Event": (
        ("wall_time", 1, False, "double"),
        ("step", 2, False, "int64"),
        ("summary", 5, False, "Summary"),
    ),
}
_CONTENTS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
"""Type of a tensor -> how its content is packed."""
_BFLOAT16, _HALF = 14, 19


@dataclass(frozen=True)
class Scalar:
    """A number that a program wrote."""

    tag: str
    step: int
    wall_time: float
    """Seconds since 1970, by the host's clock."""
    value: float


def scalars(record: bytes) -> Iterator[Scalar]:
    """Yield the scalars of a serialised event; raises ValueError if it is none."""
    if len(record) > LARGEST_EVENT:
        return
    event = _event_class()()
    try:
        event.ParseFromString(record)
    except DecodeError as error:
        raise ValueError("it is no event of TensorBoard") from error
    for value in event.summary.value:
        number = _number(value)
        tag = value.tag.decode(errors="replace")
        if number is not None and len(tag) <= LONGEST_TAG:
            yield Scalar(tag, event.step, event.wall_time, number)


def _number(value: Any) -> float | None:
    """Return the number of a value; None for an image, a histogram, a text or a larger tensor."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    return _element(value.tensor) if value.HasField("tensor") else None


def _element(tensor: Any) -> float | None:
    content, packing = tensor.tensor_content, _CONTENTS.get(tensor.dtype)
    if content:
        if tensor.dtype == _BFLOAT16 and len(content) == 2:
            return _bfloat16(content)
        is_one = packing is not None and len(content) == struct.calcsize(packing)
        return float(struct.unpack(packing, content)[0]) if packing and is_one else None
    if len(tensor.half_val) == 1:
        bits = (tensor.half_val[0] & 0xFFFF).to_bytes(2, "little")
        return _bfloat16(bits) if tensor.dtype == _BFLOAT16 else float(struct.unpack("<e", bits)[0])
    for values in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(values) == 1:
            return float(values[0])
    return None


def _bfloat16(content: bytes) -> float:
    return float(struct.unpack("<f", b"\0\0" + content)[0])


@cache
def _event_class() -> Any:
    return message_class(_MESSAGES, "Event", syntax="proto2")
