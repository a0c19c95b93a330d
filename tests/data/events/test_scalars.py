"""The numbers of an event, in each form and type that a program may write."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import (
    DT_BFLOAT16,
    DT_DOUBLE,
    DT_FLOAT,
    DT_HALF,
    DT_INT32,
    DT_INT64,
    DT_STRING,
)

from tpuctl.data.events import Scalar, scalars

LARGEST = 64 << 10


def of(*values: Summary.Value, **event: Any) -> list[Scalar]:
    return list(scalars(Event(summary=Summary(value=values), **event).SerializeToString()))


def of_tensor(dtype: int, **content: Any) -> list[float]:
    tensor = TensorProto(dtype=dtype, **content)
    return [scalar.value for scalar in of(Summary.Value(tag="x", tensor=tensor))]


def test_a_number_has_its_tag_step_and_time() -> None:
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in (("loss", 0.5), ("größe", -2.0))]
    assert of(*values, step=7, wall_time=1.5) == [Scalar("loss", 7, 1.5, 0.5), Scalar("größe", 7, 1.5, -2.0)]
    assert of(Summary.Value(tag="x", simple_value=0.0), step=-(1 << 63)) == [
        Scalar("x", -(1 << 63), 0.0, 0.0)
    ]


@pytest.mark.parametrize(
    ("dtype", "packing", "field"),
    [
        (DT_FLOAT, "<f", "float_val"),
        (DT_DOUBLE, "<d", "double_val"),
        (DT_INT32, "<i", "int_val"),
        (DT_INT64, "<q", "int64_val"),
    ],
)
def test_a_tensor_of_one_number_is_one(dtype: int, packing: str, field: str) -> None:
    assert of_tensor(dtype, **{field: [-3]}) == [-3.0]
    assert of_tensor(dtype, **{field: []}) == []
    assert of_tensor(dtype, **{field: [-3, 4]}) == []
    assert of_tensor(dtype, tensor_content=struct.pack(packing, -3)) == [-3.0]
    assert of_tensor(dtype, tensor_content=struct.pack(packing, -3)[:-1]) == []
    assert of_tensor(dtype, tensor_content=struct.pack(packing, -3) * 2) == []


@pytest.mark.parametrize(("dtype", "bits"), [(DT_HALF, 0xC200), (DT_BFLOAT16, 0xC040)])
def test_numbers_of_16_bits_are_told_by_their_type(dtype: int, bits: int) -> None:
    assert of_tensor(dtype, half_val=[bits]) == [-3.0]
    assert of_tensor(dtype, half_val=[bits | 0x10000]) == [-3.0]
    assert of_tensor(dtype, half_val=[bits, bits]) == []
    content = struct.pack("<H", bits)
    assert of_tensor(dtype, tensor_content=content) == [-3.0]
    assert of_tensor(dtype, tensor_content=content + b"\0") == []
    assert of_tensor(dtype, tensor_content=content * 2) == []


def test_a_content_of_another_type_is_no_number() -> None:
    assert of_tensor(DT_STRING, tensor_content=b"1234") == []
    assert of_tensor(DT_FLOAT, tensor_content=b"\0\0") == []
    assert of_tensor(DT_STRING, string_val=[b"1"]) == []


def test_a_histogram_is_no_number_and_hides_none_after_it() -> None:
    histogram = Summary.Value(tag="h", histo=HistogramProto(num=1))
    assert [scalar.tag for scalar in of(histogram, Summary.Value(tag="x", simple_value=1))] == ["x"]


def test_a_tag_has_at_most_256_characters() -> None:
    values = [Summary.Value(tag="ü" * size, simple_value=1) for size in (256, 257)]
    assert [len(scalar.tag) for scalar in of(*values)] == [256]


def test_an_event_is_decoded_up_to_64_kib() -> None:
    small = Event(summary=Summary(value=[Summary.Value(tag="x", simple_value=1)])).SerializeToString()
    filling = Event(graph_def=b"x" * (LARGEST - len(small) - 4)).SerializeToString()
    assert len(small + filling) == LARGEST
    assert [scalar.value for scalar in scalars(small + filling)] == [1.0]
    assert list(scalars(small + filling + b"\x08\x01")) == []


def test_a_record_that_is_no_message_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^it is no event of TensorBoard$"):
        list(scalars(b"\x2a\xff"))
