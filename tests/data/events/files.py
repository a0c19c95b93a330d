"""Event files for tests, in the messages of TensorBoard."""

from __future__ import annotations

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from tpuctl.data.tfrecord.framing import frame

TIME = 1_770_000_000.0
"""2026-02-02T02:40:00Z"""


def event(tag: str, step: int, value: float, at: float = TIME) -> bytes:
    """Return a record with one number, as PyTorch writes it."""
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return frame(Event(wall_time=at, step=step, summary=summary).SerializeToString())
