"""The command-line options that all jobs share, and the devices that they train on."""

from __future__ import annotations

import argparse
import os

import tensorflow as tf


def parser(
    text: str | None, *, epochs: int, batch: int, steps_per_call: int = 1, precision: str = "auto"
) -> argparse.ArgumentParser:
    """Return a parser with the options of all jobs and a job's own defaults; `text` describes the job."""
    options = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = options.add_argument
    add("--data", default=os.environ.get("TPUCTL_DATA_DIR"), help="folder of TFRecord shards")
    add("--out", help="folder for checkpoints, TensorBoard events and results; tpuctl sets its own")
    add("--epochs", type=int, default=epochs, help="epochs in all, those before a resume included")
    add("--batch", type=int, default=batch, help="global batch size: examples per step over all replicas")
    add("--seed", type=int, default=7, help="seed of the weights, the order and the augmentation")
    add("--steps-per-call", type=int, default=steps_per_call, help="steps that one call from Python runs")
    add("--checkpoint-every", type=int, metavar="STEPS", help="steps between checkpoints (default: an epoch)")
    add("--keep-checkpoints", type=int, default=3, metavar="COUNT",
        help="newest checkpoints to keep (default: 3); 0: all, as protected buckets need")  # fmt: skip
    add("--stop-after", type=int, metavar="STEPS", help="save a checkpoint and stop after this step")
    add("--precision", choices=("auto", "float32", "bfloat16"), default=precision)
    add("--profile", action="store_true", help="write a profile of one call for TensorBoard")
    add("--accelerator", default=os.environ.get("TPUCTL_ACCELERATOR", "v3-8"), metavar="TYPE[,TYPE...]",
        help="accelerator types that the roofline model estimates")  # fmt: skip
    return options


def choose_strategy(seed: int, precision: str = "auto") -> tf.distribute.Strategy:
    """Return a TPUStrategy if TPU_NAME names a TPU, else TensorFlow's default strategy.

    Sets the random seeds of Python, NumPy and TensorFlow, and Keras' precision policy. `precision` is auto,
    float32 or bfloat16 (with variables in float32); auto is bfloat16 on a TPU and float32 elsewhere.
    """
    tf.keras.utils.set_random_seed(seed)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    except ValueError:  # TPU_NAME is not set
        strategy, kind = tf.distribute.get_strategy(), "CPU"
    else:
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy, kind = tf.distribute.TPUStrategy(resolver), "TPU"
    half = precision == "bfloat16" or (precision == "auto" and kind == "TPU")
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16" if half else "float32")
    count = strategy.num_replicas_in_sync
    say(f"{count} {kind} replica{'s' if count > 1 else ''}, {'bfloat16' if half else 'float32'}")
    return strategy


def say(line: str) -> None:
    """Print a line to the log without buffering."""
    print(line, flush=True)
