"""What resnet.py and language_model.py share: places, chips, batches, checkpoints, SIGTERM, figures.

Copy it beside your own program: `tpuctl submit` ships both.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

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
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

STOPPED = 143
"""Exit code after SIGTERM, 128 + 15: the host was preempted, and another can resume from the checkpoint."""

PEAK = {
    "v2": 45, "v3": 123, "v4": 275, "v5litepod": 197, "v5p": 459, "v6e": 918, "tpu7x": 2307,
}  # fmt: skip
"""First part of a type's name -> peak of a chip in bfloat16, TFLOP/s (Cloud TPU documentation)."""

SMALL = 2**14
"""Arrays of fewer elements are not worth a gather in each step: every chip has them whole."""

Arrays = Any
"""Variables of the model and the optimizer's state, as global arrays."""


def start(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Join the other hosts of the slice, and return a parser with the options of every program."""
    if int(os.environ.get("TPUCTL_WORKERS", "1")) > 1:
        jax.distributed.initialize()
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("TPUCTL_DATA_DIR"), help="folder of the dataset")
    parser.add_argument(
        "--out", default=os.environ.get("TPUCTL_MODEL_DIR"), help="folder of result.json and checkpoints"
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int, help="examples of a step, on all chips of all hosts")
    parser.add_argument("--rate", type=float, help="largest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fsdp", type=int, help="chips that share each parameter; by default all")
    parser.add_argument("--report-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--checkpoint-every", type=int, default=500, metavar="STEPS")
    parser.add_argument(
        "--keep-checkpoints", type=int, default=3, metavar="N", help="the newest ones; 0 keeps all"
    )
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="end as if preempted, to rehearse it")
    parser.set_defaults(**defaults)
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the values, with the folder of checkpoints."""
    options, devices = parser.parse_args(), jax.device_count()
    if not options.data or not options.out:
        parser.error("give --data and --out: tpuctl did not start this program")
    own = os.fspath(epath.Path(options.out).absolute() / "checkpoints")
    options.checkpoints = os.environ.get("TPUCTL_CHECKPOINT_DIR", own)
    options.fsdp = options.fsdp or devices
    if options.batch % devices:
        parser.error(f"--batch: {options.batch} is not a multiple of the {devices} devices")
    if devices % options.fsdp:
        parser.error(f"--fsdp: {devices} devices are not a multiple of {options.fsdp}")
    return options


def say(line: str) -> None:
    """Print at once, on the first host: the log is followed while the program runs."""
    if jax.process_index() == 0:
        print(line, flush=True)


Load = Callable[[dict[str, Any], np.random.Generator | None], tuple[np.ndarray, ...]]
"""Makes the arrays of an example from its features; in training it may change them by the generator."""


class Data:
    """A dataset of ArrayRecord shards. Its batches depend on the seed alone, not on the number of hosts."""

    def __init__(self, options: argparse.Namespace, load: Load) -> None:
        """Open the dataset."""
        self._builder = tfds.builder_from_directory(options.data)
        self._options, self._load = options, load
        self._on_all = NamedSharding(_mesh(options), PartitionSpec(("data", "fsdp")))
        self._train = self._builder.as_data_source("train")
        self.features = self._builder.info.features
        self.steps = options.epochs * len(self._train) // options.batch
        """Number of steps of all epochs."""
        say(
            f"{jax.device_count()} {jax.devices()[0].platform} devices of {jax.process_count()} hosts,"
            f" {len(self._train)} examples, {self.steps} steps"
        )

    def batches(self) -> Any:
        """Return the iterator over this host's part of each global batch."""
        hosts = jax.process_count()
        dataset = grain.MapDataset.source(self._train).seed(self._options.seed).shuffle().repeat()
        parts = dataset.random_map(self._load).batch(self._options.batch // hosts)
        return iter(parts[jax.process_index() :: hosts].to_iter_dataset())

    def on_devices(self, batch: Any) -> Any:
        """Return global arrays, of which each host puts its part on its own chips."""
        return jax.tree.map(lambda part: jax.make_array_from_process_local_data(self._on_all, part), batch)

    def held_out(self) -> Iterator[tuple[Any, jax.Array]]:
        """Yield the examples to evaluate on, in global batches; weights are 0 for what fills up the last."""
        split = "validation" if "validation" in self._builder.info.splits else "test"
        source, size = self._builder.as_data_source(split), self._options.batch
        part = size // jax.process_count()
        for first in range(0, len(source), size):
            begin = first + part * jax.process_index()
            rows = [self._load(source[min(row, len(source) - 1)], None) for row in range(begin, begin + part)]
            weights = (np.arange(begin, begin + part) < len(source)).astype(np.float32)
            yield self.on_devices((tuple(np.stack(column) for column in zip(*rows, strict=True)), weights))


class Created(NamedTuple):
    """A model and its optimizer: how they are built, and their arrays on the chips."""

    graph: Any
    arrays: Arrays

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        model, _ = nnx.merge(self.graph, self.arrays)
        return sum(int(array.size) for array in jax.tree.leaves(nnx.state(model, nnx.Param)))


def create(
    build: Callable[[nnx.Rngs], nnx.Module], tx: optax.GradientTransformation, options: argparse.Namespace
) -> Created:
    """Make model and optimizer on the chips, of which `fsdp` share each array, along its longest axis."""
    mesh = _mesh(options)

    def make() -> tuple[nnx.Module, nnx.Optimizer[Any]]:
        model = build(nnx.Rngs(options.seed))
        return model, nnx.Optimizer(model, tx, wrt=nnx.Param)

    def placed(array: jax.ShapeDtypeStruct) -> NamedSharding:
        axes = [axis for axis, size in enumerate(array.shape) if size % options.fsdp == 0]
        if not axes or array.size < SMALL:
            return NamedSharding(mesh, PartitionSpec())
        longest = max(axes, key=array.shape.__getitem__)
        return NamedSharding(mesh, PartitionSpec(*[None] * longest, "fsdp"))

    graph, shapes = nnx.split(nnx.eval_shape(make))
    arrays = jax.jit(lambda: nnx.split(make())[1], out_shardings=jax.tree.map(placed, shapes))()
    return Created(graph, arrays)


def _mesh(options: argparse.Namespace) -> Mesh:
    return Mesh(np.asarray(jax.devices()).reshape(-1, options.fsdp), ("data", "fsdp"))


def _step_of(created: Created, mean_loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    """Return a function of arrays and a batch that takes one step; the chips sum their gradients."""
    # arrays stay where they are, or the next step would be compiled again
    places = jax.tree.map(lambda array: array.sharding, created.arrays)

    @partial(jax.jit, donate_argnums=0, out_shardings=(places, None))
    def step(arrays: Arrays, batch: Any) -> tuple[Arrays, jax.Array]:
        model, optimizer = nnx.merge(created.graph, arrays)
        loss, gradients = nnx.value_and_grad(mean_loss)(model, *batch)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss

    return step


def train(
    options: argparse.Namespace,
    created: Created,
    data: Data,
    mean_loss: Callable[..., jax.Array],
    evaluate: Callable[[Arrays], dict[str, float]],
    flops: float = 0.0,
) -> None:
    """Resume, train, save, evaluate, and write result.json; exit with 143 after SIGTERM on any host.

    `mean_loss` is that of a model and the arrays of a batch; `flops` are those of a step, for the share of
    the chips' peak that they use.
    """
    stop, arrays, spent = Stop(), created.arrays, Time()
    step_of = _step_of(created, mean_loss)
    keep = ocp.CheckpointManagerOptions(max_to_keep=options.keep_checkpoints or None)
    batches = data.batches()
    with (
        ocp.CheckpointManager(options.checkpoints, options=keep) as checkpoints,
        Events(options.out) as events,
    ):
        step, arrays = _restore(checkpoints, arrays, batches)
        figures: dict[str, float] = {}
        while step < data.steps and not stop.requested(step) and step != options.stop_after:
            with spent.waiting():
                batch = data.on_devices(next(batches))
            arrays, loss = step_of(arrays, batch)
            step += 1
            if step % options.report_every == 0 or step == data.steps:
                figures = {"loss": float(loss), **spent.lap(step, options.batch, flops)}
                events.write(step, figures)
                say(f"step {step}  " + "  ".join(f"{name} {value:.4g}" for name, value in figures.items()))
            if step % options.checkpoint_every == 0 or step == data.steps:
                _save(checkpoints, step, arrays, batches)
        if step < data.steps:
            if checkpoints.latest_step() != step:
                _save(checkpoints, step, arrays, batches)
            checkpoints.wait_until_finished()
            say(f"stopped at step {step}")
            sys.exit(STOPPED)
        result = {"step": step, **figures, **evaluate(arrays)}
        events.write(step, result)
    say("measured: " + ", ".join(f"{name} {value:.4g}" for name, value in result.items()))
    if jax.process_index() == 0:
        epath.Path(options.out, "result.json").write_text(json.dumps(result) + "\n")


def _save(checkpoints: Any, step: int, arrays: Arrays, batches: Any) -> None:
    """Write arrays and the place in the data; the files are written while training continues."""
    args = ocp.args.Composite(
        state=ocp.args.StandardSave(arrays), data=ocp.args.JsonSave(batches.get_state())
    )
    checkpoints.save(step, args=args, force=True)


def _restore(checkpoints: Any, arrays: Arrays, batches: Any) -> tuple[int, Arrays]:
    """Return the newest step and its arrays, placed as those given: as this slice needs them."""
    step = checkpoints.latest_step()
    if step is None:
        return 0, arrays
    like = jax.tree.map(ocp.utils.to_shape_dtype_struct, arrays)
    restored = checkpoints.restore(
        step, args=ocp.args.Composite(state=ocp.args.StandardRestore(like), data=ocp.args.JsonRestore())
    )
    batches.set_state(restored.data)
    say(f"resumed at step {step}")
    return int(step), restored.state


class Stop:
    """Whether a machine was asked to end: a preempted TPU VM has 30 seconds from SIGTERM on."""

    def __init__(self) -> None:
        """Handle SIGTERM, unless JAX's own service does: it agrees with all hosts on the step to stop at."""
        self._here = False
        if jax.process_count() == 1:
            signal.signal(signal.SIGTERM, self._request)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._here = True

    def requested(self, step: int) -> bool:
        """Return whether to stop before this step; the same on all hosts."""
        return self._here or (jax.process_count() > 1 and multihost_utils.reached_preemption_sync_point(step))


class Time:
    """The time of steps since the last report, and the share of it that they waited for input."""

    def __init__(self) -> None:
        """Start with the first lap, which compiles and is not measured."""
        self._began, self._step, self._waited = 0.0, 0, 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting."""
        began = time.perf_counter()
        yield
        self._waited += time.perf_counter() - began

    def lap(self, step: int, batch: int, flops: float) -> dict[str, float]:
        """Return the figures of the steps since the last call; nothing for the first one, which compiled."""
        now, figures = time.perf_counter(), {}
        if self._began:
            seconds = (now - self._began) / (step - self._step)
            figures = {"step_ms": 1000 * seconds, "examples_per_second": batch / seconds}
            figures["waiting_for_input"] = min(self._waited / (now - self._began), 1.0)
            peak = PEAK.get(os.environ.get("TPUCTL_ACCELERATOR", "").partition("-")[0], 0)
            if flops and peak:
                figures["flop_utilisation"] = flops / seconds / (1e12 * peak * chips())
        self._began, self._step, self._waited = now, step, 0.0
        return figures


def chips() -> int:
    """Return the number of chips: up to v3 JAX has a device for each of the two cores of a chip."""
    generation = os.environ.get("TPUCTL_ACCELERATOR", "").partition("-")[0]
    return jax.device_count() // (2 if generation in ("v2", "v3", "tpu7x") else 1)


class Events:
    """TensorBoard's file of events, written on the first host, without TensorFlow."""

    def __init__(self, folder: str) -> None:
        """Write to the folder that tpuctl sets, or to `tensorboard` in the program's own."""
        where = os.environ.get("TPUCTL_TENSORBOARD_DIR", os.path.join(folder, "tensorboard"))
        self._writer = EventFileWriter(where) if jax.process_index() == 0 else None

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._writer:
            self._writer.close()

    def write(self, step: int, figures: dict[str, float]) -> None:
        """Add scalars."""
        if self._writer:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
            self._writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=values)))
            self._writer.flush()
