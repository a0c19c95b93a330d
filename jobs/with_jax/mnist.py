# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "jax", "flax", "optax", "orbax-checkpoint", "grain", "tensorflow-datasets", "gcsfs", "pillow"
# ]
#
# [tool.tpuctl]
# accelerator = "v5litepod-4"
# dataset = "mnist"
# framework = "jax"
# ///
"""Train a small network to classify handwritten digits, with JAX, on the chips of one host or of several.

    tpuctl data upload mnist SOURCE --file-format arrayrecord
    tpuctl submit jobs/with_jax/mnist.py                      on a Cloud TPU
    python jobs/with_jax/mnist.py --data FOLDER --out FOLDER  on this machine, without a TPU

The data are ArrayRecord shards with `image` (28 x 28 x 1) and `label`. One file, for reading: the whole of a
program that resumes at the step where it stopped, with the batches that it would have seen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import grain
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import tensorflow_datasets as tfds  # its data source needs no TensorFlow
from etils import epath
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec


class Network(nnx.Module):
    """Images (batch, 28, 28, 1) of floats to logits (batch, 10)."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.second = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.hidden = nnx.Linear(7 * 7 * 64, 128, rngs=rngs)
        self.logits = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the logits."""
        x = nnx.max_pool(nnx.relu(self.first(images)), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.second(x)), (2, 2), (2, 2))
        return self.logits(nnx.relu(self.hidden(x.reshape(len(x), -1))))


@nnx.jit
def train_step(model: Network, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Take one step; return the mean loss. Devices share the batch: XLA sums their gradients."""

    def mean_loss(model: Network) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count_correct(model: Network, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return how many of the images are recognized."""
    return (model(images).argmax(axis=1) == labels).sum()


def load(example: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return an image as floats from 0 to 1, and its label."""
    return np.asarray(example["image"], np.float32) / 255, np.asarray(example["label"], np.int32)


def batches(source: Any, options: argparse.Namespace) -> grain.IterDataset:
    """Return this host's part of all epochs of the source, each in an order that only the seed decides on."""
    dataset = grain.MapDataset.source(source).seed(options.seed).shuffle().repeat(options.epochs)
    own = dataset[jax.process_index() :: jax.process_count()].map(load)
    return own.batch(options.batch // jax.process_count(), drop_remainder=True).to_iter_dataset()


class Stop:
    """Whether the machine asked the program to end: a preempted TPU VM has 30 seconds from SIGTERM on."""

    def __init__(self) -> None:
        self._requested = False
        if jax.process_count() == 1:  # else a service of JAX handles it
            signal.signal(signal.SIGTERM, self._request)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested = True

    def is_requested(self, step: int) -> bool:
        """Return whether a host was asked to end: all of them end at the same step, or wait for ever."""
        several = jax.process_count() > 1
        return self._requested or (several and multihost_utils.reached_preemption_sync_point(step))


def main() -> None:
    """Train, and write checkpoints and result.json."""
    if int(os.environ.get("TPUCTL_WORKERS", "1")) > 1:
        jax.distributed.initialize()  # the hosts of a slice find each other
    options = parse()
    stop = Stop()
    builder = tfds.builder_from_directory(options.data)
    train, test = builder.as_data_source("train"), builder.as_data_source("test")
    total = options.epochs * len(train) // options.batch
    mesh = Mesh(jax.devices(), ("data",))
    by_device = NamedSharding(mesh, PartitionSpec("data"))
    say(f"{len(mesh.devices)} {jax.devices()[0].platform} devices, {len(train)} images, {total} steps")

    model = Network(nnx.Rngs(options.seed))
    optimizer = nnx.Optimizer(model, optax.adam(options.rate), wrt=nnx.Param)
    on_all = NamedSharding(mesh, PartitionSpec())
    iterator = iter(batches(train, options))
    state = nnx.state((model, optimizer))
    nnx.update((model, optimizer), jax.device_put(state, on_all))
    keep = ocp.CheckpointManagerOptions(max_to_keep=options.keep_checkpoints or None)
    with ocp.CheckpointManager(options.checkpoints, options=keep) as checkpoints:
        step = restore(checkpoints, model, optimizer, iterator)
        while step < total and step != options.stop_after and not stop.is_requested(step):
            images, labels = (
                jax.make_array_from_process_local_data(by_device, own) for own in next(iterator)
            )
            loss = train_step(model, optimizer, images, labels)
            step += 1
            if step % options.checkpoint_every == 0 or step == total:
                say(f"step {step}  loss {loss:.4f}")
                save(checkpoints, step, model, optimizer, iterator)
        if step < total:
            if checkpoints.latest_step() != step:
                save(checkpoints, step, model, optimizer, iterator)
            checkpoints.wait_until_finished()
            say(f"stopped at step {step}")
            sys.exit(143)

    correct = sum(int(count_correct(model, *batch)) for batch in whole(test))
    result = {"step": step, "accuracy": correct / len(test), "images": len(test)}
    say(f"measured: {result['accuracy']:.4f} of {len(test)} test images")
    if jax.process_index() == 0:
        epath.Path(options.out, "result.json").write_text(json.dumps(result) + "\n")


def whole(source: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each example once, in batches that are the same on every host."""
    yield from grain.MapDataset.source(source).map(load).batch(1000)


def save(checkpoints: Any, step: int, model: Network, optimizer: nnx.Optimizer, iterator: Any) -> None:
    """Write variables and the place in the data; the files are written while training continues."""
    state = ocp.args.StandardSave(nnx.to_pure_dict(nnx.state((model, optimizer))))
    data = grain.checkpoint.CheckpointSave(iterator)
    checkpoints.save(step, args=ocp.args.Composite(state=state, data=data))


def restore(checkpoints: Any, model: Network, optimizer: nnx.Optimizer, iterator: Any) -> int:
    """Set all to the newest checkpoint, and return its step; 0 without one."""
    step = checkpoints.latest_step()
    if step is None:
        return 0
    state = nnx.state((model, optimizer))
    restored = checkpoints.restore(
        step,
        args=ocp.args.Composite(
            state=ocp.args.StandardRestore(nnx.to_pure_dict(state)),
            data=grain.checkpoint.CheckpointRestore(iterator),
        ),
    )
    nnx.replace_by_pure_dict(state, restored.state)
    nnx.update((model, optimizer), state)
    say(f"resumed at step {step}")
    return int(step)


def say(line: str) -> None:
    """Print once, and at once: the log is followed while the program runs."""
    if jax.process_index() == 0:
        print(line, flush=True)


def parse() -> argparse.Namespace:
    """Return the options; places are those of tpuctl where it started the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("TPUCTL_DATA_DIR"), help="folder of the dataset")
    parser.add_argument(
        "--out", default=os.environ.get("TPUCTL_MODEL_DIR"), help="folder of result.json and checkpoints"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=200, help="images of a step, on all chips")
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=300, metavar="STEPS")
    parser.add_argument(
        "--keep-checkpoints", type=int, default=3, metavar="N", help="the newest ones; 0 keeps all"
    )
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="end as if preempted, to rehearse it")
    options = parser.parse_args()
    if not options.data or not options.out:
        parser.error("give --data and --out: tpuctl did not start this program")
    own = os.fspath(epath.Path(options.out).absolute() / "checkpoints")
    options.checkpoints = os.environ.get("TPUCTL_CHECKPOINT_DIR", own)
    if options.batch % jax.device_count():
        parser.error(f"--batch: {options.batch} is not a multiple of the {jax.device_count()} devices")
    return options


if __name__ == "__main__":
    main()
