"""Sets the numbers of TensorFlow's threads by the replicas, not by the machine's cores."""

from __future__ import annotations

from .hooks import TensorFlow

_AT_ONCE = 8
"""Threads that all replicas' operations share; TensorFlow's own choice is the machine's cores."""
_FOR_INPUT = 8
"""Threads for operations beside one for each replica: a TPU leaves its host to the input."""


def install(tensorflow: TensorFlow, replicas: int) -> None:
    """Choose the numbers by the replicas alone; the program may change them as without the emulation.

    With many replicas each operation has a thread, and the replicas run side by side. So sums are computed in
    the same order on every machine. Without threads to spare, the replicas' operations take all those of a
    small machine, and the next batch is not fetched before they have ended.
    """
    tensorflow.tf.config.threading.set_intra_op_parallelism_threads(max(1, _AT_ONCE // replicas))
    tensorflow.tf.config.threading.set_inter_op_parallelism_threads(replicas + _FOR_INPUT)
