"""All scalars of an event file, read in blocks, and those near the end of a very large one."""

from __future__ import annotations

import pytest
from tensorboard.compat.proto.event_pb2 import Event

from tests.data.events.files import event
from tpuctl.data.events import all_scalars
from tpuctl.data.tfrecord.framing import frame

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
