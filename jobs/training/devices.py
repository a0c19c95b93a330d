"""The command line that all jobs share, and the devices they train on."""

from __future__ import annotations

import argparse
import os

import tensorflow as tf


def parser(
    text: str | None, *, epochs: int, batch: int, steps_per_call: int = 1, precision: str = "auto"
) -> argparse.ArgumentParser:
    """Return the command line that all jobs share, with a job's own defaults; `text` is its docstring."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = made.add_argument
    add("--data", default=os.environ.get("TPUCTL_DATA_DIR"), help="folder of the TFRecord shards")
    add("--out", help="folder for checkpoints, TensorBoard and results; tpuctl says its own")
    add("--epochs", type=int, default=epochs)
    add("--batch", type=int, default=batch, help="examples a step, over all replicas")
    add("--seed", type=int, default=7)
    add("--steps-per-call", type=int, default=steps_per_call, help="steps that one call of Python starts")
    add("--checkpoint-every", type=int, metavar="STEPS", help="an epoch, if not given")
    add("--stop-after", type=int, metavar="STEPS", help="save and end there, as a preempted run does")
    add("--precision", choices=("auto", "float32", "bfloat16"), default=precision)
    add("--profile", action="store_true", help="profile a call, for TensorBoard")
    add("--accelerator", default=os.environ.get("TPUCTL_ACCELERATOR", "v3-8"), metavar="TYPE[,TYPE...]",
        help="TPUs of the roofline model")  # fmt: skip
    return made


def find_devices(seed: int, precision: str = "auto") -> tf.distribute.Strategy:
    """Return the strategy for the TPU that TPU_NAME names, or without one for this machine.

    Seeds everything. `precision` is auto, float32 or bfloat16; auto computes in bfloat16 on a TPU, with the
    variables in float32.
    """
    tf.keras.utils.set_random_seed(seed)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    except ValueError:  # no TPU is named
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
    """Print a line of the log at once."""
    print(line, flush=True)
