"""Event files: the scalars of every writer, from their end or in blocks, of large and torn ones."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from pathlib import Path
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

from tests.data.events.files import event
from tpuctl.data.events import LARGEST_EVENT, WINDOWS, Scalar, all_scalars, last_scalars, scalars
from tpuctl.data.tfrecord.framing import OVERHEAD, frame

TENSORFLOW = """
import sys, tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[3])  # that of torch.utils.tensorboard
for step, (tag, value) in enumerate([("loss", 0.5), ("acc", 0.0), ("loss", 0.25)]):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    writer.add_event(Event(wall_time=1770000000, step=step, summary=summary))
writer.close()
with tf.summary.create_file_writer(sys.argv[1]).as_default():
    for step in range(3):
        tf.summary.scalar("loss", 1 / (step + 1), step=step)
        tf.summary.scalar("half", tf.constant(step, tf.float16), step=step)
        tf.summary.text("note", "no scalar", step=step)
model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
ones = tf.ones((4, 1))
callback = tf.keras.callbacks.TensorBoard(sys.argv[2])
model.fit(ones, ones, epochs=2, verbose=0, callbacks=[callback], validation_data=(ones, ones))
"""


def last(data: bytes, *tags: str) -> dict[str, tuple[int, float]]:
    found = last_scalars(lambda start, end: data[start:end], len(data), lambda tag: not tags or tag in tags)
    return {tag: (scalar.step, round(scalar.value, 4)) for tag, scalar in found.items()}


@pytest.mark.slow
def test_files_that_tensorflow_keras_and_pytorch_s_writer_write(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("tf", "keras", "pt")]
    command = [sys.executable, "-c", TENSORFLOW, *folders]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    (pytorch,) = (tmp_path / "pt").iterdir()
    assert last(pytorch.read_bytes(), "loss", "acc") == {"loss": (2, 0.25), "acc": (1, 0.0)}
    (plain,) = (tmp_path / "tf").iterdir()
    assert last(plain.read_bytes()) == {"loss": (2, 0.3333), "half": (2, 2.0)}
    for folder in ("train", "validation"):
        (file,) = (path for path in (tmp_path / "keras" / folder).iterdir() if "tfevents" in path.name)
        assert last(file.read_bytes())["epoch_loss"][0] == 1


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(dtype=1, float_val=[1.5]), TensorProto(dtype=2, double_val=[1.5]),
        TensorProto(dtype=1, tensor_content=b"\x00\x00\xc0\x3f"), TensorProto(dtype=19, half_val=[0x3E00]),
        TensorProto(dtype=14, half_val=[0x3FC0]), TensorProto(dtype=14, tensor_content=b"\xc0\x3f"),
    ],
)  # fmt: skip
def test_a_tensor_of_one_number_is_a_scalar_in_every_type(tensor: TensorProto) -> None:
    data = Event(step=1, summary=Summary(value=[Summary.Value(tag="x", tensor=tensor)])).SerializeToString()
    assert [scalar.value for scalar in scalars(data)] == [1.5]


@pytest.mark.parametrize(
    "value",
    [
        Summary.Value(tag="x", tensor=TensorProto(dtype=1, float_val=[1, 2])),
        Summary.Value(tag="x", tensor=TensorProto(dtype=1, tensor_content=b"12345678")),
        Summary.Value(tag="x", tensor=TensorProto(dtype=7, string_val=[b"a"])),
        Summary.Value(tag="x", tensor=TensorProto(dtype=99, tensor_content=b"1234")),
        Summary.Value(tag="x" * 257, simple_value=1.0),
        Summary.Value(tag="x"),
    ],
)
def test_what_is_no_scalar_is_left_out(value: Summary.Value) -> None:
    assert list(scalars(Event(summary=Summary(value=[value])).SerializeToString())) == []
    assert list(scalars(b"\xff" * (LARGEST_EVENT + 1))) == []


def test_wherever_the_last_record_is_torn_the_values_before_it_count() -> None:
    whole = event("loss", 1, 0.5) + event("loss", 2, 0.25)
    for torn in (event("loss", 3, 0.125)[:cut] for cut in range(len(event("loss", 3, 0.125)))):
        assert last(whole + torn) == {"loss": (2, 0.25)}


def test_of_a_gigabyte_only_the_end_is_read() -> None:
    block = event("loss", 1, 0.5) + frame(Event(graph_def=b"x" * 3000).SerializeToString())
    size, reads = (1 << 30) // len(block) * len(block), list[int]()
    end = event("loss", 7, 0.25)

    def read(start: int, stop: int) -> bytes:
        reads.append(stop - start)
        first, last = start // len(block), -(-min(stop, size) // len(block))
        data = block * (last - first) + end
        return data[start - first * len(block) :][: stop - start]

    found = last_scalars(read, size + len(end), lambda tag: tag == "loss")
    assert found["loss"].step == 7
    assert sum(reads) <= WINDOWS[1]
    assert last_scalars(read, size + len(end), lambda tag: False) == {}
    assert sum(reads) <= WINDOWS[1] + WINDOWS[2]


def test_what_is_written_once_an_epoch_is_found_behind_what_is_written_every_step() -> None:
    steps = b"".join(event("loss", step, 0.5) for step in range(4000))
    assert WINDOWS[0] < len(steps) < WINDOWS[1]
    assert last(event("val_loss", 1, 0.25) + steps) == {"val_loss": (1, 0.25), "loss": (3999, 0.5)}


def test_a_window_may_begin_anywhere_in_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(event("loss", step, step / 8) for step in range(40))
    for window in range(1, len(data)):
        monkeypatch.setattr("tpuctl.data.events.WINDOWS", (window,))
        expected = {"loss": (39, 4.875)} if window >= len(event("loss", 39, 1.0)) else {}
        assert last(data) == expected, window


def test_an_image_that_is_larger_than_what_is_read_hides_the_values_before_it() -> None:
    assert last(event("loss", 1, 0.5) + frame(b"x" * (5 << 20))) == {}
    assert last(event("loss", 1, 0.5) + frame(b"x" * (1 << 20))) == {"loss": (1, 0.5)}


def damaged(place: int) -> bytes:
    data = bytearray(event("loss", 1, 0.5) + event("loss", 2, 0.25))
    data[place] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0" * (6 << 20), id="zeros"),
        pytest.param(b"\0" * 100, id="few zeros"),
        pytest.param(random.Random(7).randbytes(100), id="noise"),
        pytest.param(b"\x01\0\0\0\0\0\0\0" * (1 << 19), id="lengths without checksums"),
        pytest.param(b"{}" * 100, id="text"),
        pytest.param(damaged(3), id="a length"),
        pytest.param(damaged(20), id="data"),
        pytest.param(frame(b"\x2a\xff"), id="no protobuf"),
    ],
)
def test_what_is_no_event_file_is_refused_at_once(data: bytes) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r"event|damaged"):
        last(data)
    assert time.process_time() - began < 10


def test_records_that_pretend_to_overlap_are_tried_once_each() -> None:
    """Heads with right checksums, whose records would all reach far."""
    head = frame(b"x" * (3 << 20))[: OVERHEAD - 4]
    began = time.process_time()
    with pytest.raises(ValueError, match="damaged"):
        last(head * (5 << 18))
    assert time.process_time() - began < 10


STEPS = b"".join(event("loss", step, step / 8) for step in range(40))


def steps(data: bytes, **options: int) -> list[int]:
    def read(start: int, end: int) -> bytes:
        return data[start:end]

    return [scalar.step for scalar in all_scalars(read, len(data), lambda tag: tag == "loss", **options)]


@pytest.mark.parametrize("block", [1, 7, 40, len(STEPS) - 1, len(STEPS), 1 << 20])
def test_every_value_is_read_whatever_the_size_of_a_block(block: int) -> None:
    assert steps(STEPS, block=block) == list(range(40))


def test_other_tags_and_a_torn_end_are_left_out() -> None:
    data = event("loss", 1, 0.5) + event("acc", 2, 0.5) + event("loss", 3, 0.5)
    assert steps(data[:-1], block=9) == [1]


@pytest.mark.parametrize("most", [100, 500, 999])
@pytest.mark.parametrize("block", [30, 64, 4096])
def test_of_a_large_file_the_end_is_read(most: int, block: int) -> None:
    read = steps(STEPS, most=most, block=block)
    assert read == list(range(40))[-len(read) :]
    assert len(read) >= (most - 100) // (len(STEPS) // 40) > -1


def test_an_image_of_several_blocks_hides_no_value_after_it() -> None:
    image = frame(Event(graph_def=b"x" * 5000).SerializeToString())
    assert steps(event("loss", 1, 0.5) + image + event("loss", 2, 0.5), block=64) == [1, 2]
    assert steps(event("loss", 1, 0.5) + image + event("loss", 2, 0.5), block=64, most=1000) == [2]


def test_what_is_no_event_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no event file"):
        steps(b"{}" * 100)


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
