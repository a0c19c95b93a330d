"""Threads within an operation: as many on every machine, so that sums are made in the same order."""

from __future__ import annotations

from typing import Any

_AT_ONCE = 8
"""Threads that all replicas' operations share; TensorFlow's own choice is the machine's cores."""


def install(tensorflow: Any, replicas: int) -> None:
    """Choose a number by the replicas alone; the program may choose another, as ever.

    With many replicas each operation has a thread, and the replicas run side by side.
    """
    tensorflow.tf.config.threading.set_intra_op_parallelism_threads(max(1, _AT_ONCE // replicas))
