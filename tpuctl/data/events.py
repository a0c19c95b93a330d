"""Reads the event files of TensorBoard, without TensorFlow.

- Finds the last scalars of an event file near its end: files grow to gigabytes, and new values come last.
- Decodes the scalars of an event: numbers as TensorFlow 1 and PyTorch write them, or tensors of one
  number.

  Source: tensorflow/core/util/event.proto, tensorflow/core/framework/{summary,tensor}.proto.
- Reads all scalars of an event file in blocks; of a very large file those near its end.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from tpuctl.data.tfrecord.example_decoding import Messages, message_class
from tpuctl.data.tfrecord.framing import HEAD, OVERHEAD, framed_length, is_intact

WINDOWS = (64 << 10, 512 << 10, 4 << 20)
"""Bytes from the end that are read: more, if those before have none of the wanted scalars."""
MOST_PLACES = 100_000
"""Places of a window that are tried for the begin of a record."""
_LENGTH = re.compile(rb"(?s)(?=...\x00{5})")
"""Where the length of a record below 16 MiB may begin."""

Read = Callable[[int, int], bytes]
"""Returns the bytes of the file from one place to before another."""


def last_scalars(read: Read, size: int, wants: Callable[[str], bool]) -> dict[str, Scalar]:
    """Return the newest scalar of each wanted tag near the end of a file of `size` bytes.

    A last record that is not complete is being written. Raises ValueError for a file that is no event file.
    """
    found: dict[str, Scalar] = {}
    begin, data = size, b""
    for number, window in enumerate(WINDOWS):
        start = max(0, size - window)
        data, begin = read(start, begin) + data, start
        found = _newest(data, is_whole=not start, wants=wants)
        if not start or (found and number):
            break
    return found


def _newest(data: bytes, *, is_whole: bool, wants: Callable[[str], bool]) -> dict[str, Scalar]:
    newest: dict[str, Scalar] = {}
    for record, _ in records(data, 0 if is_whole else first_record(data)):
        for scalar in scalars(record):
            if wants(scalar.tag):
                newest[scalar.tag] = scalar
    return newest


def records(data: bytes, place: int) -> Iterator[tuple[bytes, int]]:
    """Yield the complete records from a place on, each with the place after it.

    Raises ValueError for a damaged one.
    """
    while place + HEAD <= len(data):
        length = framed_length(data[place : place + HEAD])
        if length is None:
            raise ValueError("it is no event file, or damaged")
        end = place + length + OVERHEAD
        if end > len(data):
            return
        if not is_intact(data[place + HEAD : end]):
            raise ValueError("a record of it is damaged")
        yield data[place + HEAD : end - (OVERHEAD - HEAD)], end
        place = end


def first_record(data: bytes) -> int:
    """Return the place of the first record in a window that begins within one; its end if there is none."""
    for tried, match in enumerate(_LENGTH.finditer(data)):
        place = match.start()
        if tried == MOST_PLACES:
            raise ValueError("it is no event file, or damaged")
        if framed_length(data[place : place + HEAD]) is not None and _is_followed(data, place):
            return place
    return len(data)


def _is_followed(data: bytes, place: int) -> bool:
    """Whether another record begins where this one would end, or the window ends before."""
    length = framed_length(data[place : place + HEAD]) or 0
    following = place + length + OVERHEAD
    return following + HEAD > len(data) or framed_length(data[following : following + HEAD]) is not None


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


BLOCK = 4 << 20
"""Bytes that are read at once."""
MOST = 64 << 20
"""Bytes of a file that are read, from its end: files with images and profiles grow to gigabytes."""


def all_scalars(
    read: Read, size: int, wants: Callable[[str], bool], *, most: int = MOST, block: int = BLOCK
) -> Iterator[Scalar]:
    """Yield the scalars of the wanted tags in a file of `size` bytes, in the order of the file.

    A last record that is not complete is being written. Raises ValueError for a file that is no event file.
    """
    start, rest, is_aligned = max(0, size - most), b"", size <= most
    while start < size:
        end = min(start + block, size)
        data = rest + read(start, end)
        place = 0 if is_aligned else first_record(data)
        is_aligned |= place < len(data)
        for record, after in records(data, place):
            yield from (scalar for scalar in scalars(record) if wants(scalar.tag))
            place = after
        start, rest = end, data[place:] if is_aligned else data[1 - HEAD :]
