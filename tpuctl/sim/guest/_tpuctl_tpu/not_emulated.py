"""Refuses, in one sentence, what the emulated TPU does not have: embedding hardware and DTensor's meshes."""

from __future__ import annotations

from typing import Any

from .hooks import TensorFlow

EMBEDDING = (
    "The simulated TPU has no embedding hardware, which tf.tpu.experimental.embedding.TPUEmbedding needs. "
    "tf.keras.layers.Embedding runs on it, as on every TPU."
)
DTENSOR = (
    "The simulated TPU has no devices for DTensor. Test the program with a mesh of CPU devices: "
    "tf.experimental.dtensor.initialize_accelerator_system('CPU')."
)


def install(tensorflow: TensorFlow) -> None:
    """Replace what would end in an error of a missing kernel."""
    embedding = tensorflow.embedding.TPUEmbedding
    build = embedding.build

    def build_without_tpu(self: Any, *args: object, **options: object) -> object:
        if self._using_tpu:
            raise NotImplementedError(EMBEDDING)
        return build(self, *args, **options)

    def initialize_tpu_system(*_: object, **__: object) -> None:
        raise NotImplementedError(DTENSOR)

    embedding.build = build_without_tpu
    tensorflow.dtensor.initialize_tpu_system = initialize_tpu_system
