"""Turns off tuning of parallelism in input pipelines: its thread keeps iterators alive too long."""

from __future__ import annotations

from .hooks import TensorFlow


def install(tensorflow: TensorFlow) -> None:
    """Switch tf.data's autotuning off, except where the program asks for it.

    On few cores TensorFlow's Model::OptimizeLoop often misses its cancellation and sleeps on, for up to a
    minute, and each replica's iterator has such a thread. What a pipeline yields does not depend on it.
    """
    tf, dataset = tensorflow.tf, tensorflow.datasets.DatasetV2
    apply_options = dataset._apply_debug_options

    def apply_options_without_autotune(self: object) -> object:
        applied = apply_options(self)
        if applied.options().autotune.enabled is not None:
            return applied
        options = tf.data.Options()
        options.autotune.enabled = False
        return applied.with_options(options)

    dataset._apply_debug_options = apply_options_without_autotune
