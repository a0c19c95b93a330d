"""The progress of a training: resume from the last checkpoint, save, measure, report."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from training.devices import say
from training.roofline import estimate
from training.speed import StepTimer, TimedBatches

STOPPED = 143
"""Exit code after SIGTERM, 128 + 15: the host was preempted, and another can resume from the checkpoint."""


class Progress(tf.keras.callbacks.Callback):
    """The progress of a training, for a custom training loop or as a callback of Keras' `fit`.

    A custom training loop iterates over `epochs` and `calls`, and passes its metrics to `report`. With `fit`,
    call `instrument` with the model, then `fit` once for each of `fit_arguments`. The constructor restores
    the last checkpoint, so the tracked objects (model, optimizer, perhaps metrics) must be built before. On
    SIGTERM the current call ends, a checkpoint is saved, and the program exits with 143.
    """

    def __init__(
        self, options: argparse.Namespace, steps: int, batch: int, *, optimizer: Any, **tracked: Any
    ) -> None:
        """Restore the last checkpoint; `steps` is the steps per epoch, `batch` the global batch size."""
        super().__init__()
        self._options = options
        self._steps = steps
        self._batch = batch
        self._optimizer = optimizer
        self._stop = False
        self._epochs = 0
        self._calls = 0
        self._profiling = False
        self._metrics: dict[str, float] = {}
        self._timer = StepTimer()
        self._input: TimedBatches | None = None
        self._estimate: Callable[[str], str] | None = None
        self._validate: Callable[[], dict[str, float]] = dict
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._shape = tf.Variable([batch, steps], dtype=tf.int64, trainable=False)
        self._folders = _output_folders(options.out)
        self._writer = self._open_events()
        self._manager = self._restore(
            {**tracked, "optimizer": optimizer, "step": self._step, "shape": self._shape}
        )
        self.steps_per_call = _divisor(math.gcd(steps, self.step), options.steps_per_call)
        signal.signal(signal.SIGTERM, self._on_signal)

    @property
    def step(self) -> int:
        """Number of steps trained so far, those before a resume included."""
        return int(self._step.numpy())

    def epochs(self, epochs: int) -> Iterator[int]:
        """Yield the number of each remaining epoch up to `epochs`; the first epoch is 1."""
        while self.step < epochs * self._steps:
            yield self.step // self._steps + 1
            self._end_of_epoch(epochs)

    def calls(self, most: int | None = None) -> Iterator[int]:
        """Yield the number of steps of each call to the end of the epoch: `most`, or --steps-per-call."""
        self._timer.start(self._waited())
        remaining = self._steps - self.step % self._steps
        while remaining:
            steps = min(most or self._options.steps_per_call, remaining, max(self._until_stop(), 1))
            self._profile()
            yield steps
            self._end_call(steps)
            remaining -= steps
        self._optimizer.iterations.numpy()  # waits for the steps that the TPU has queued
        self._timer.stop(self._waited())

    def fit_arguments(self, epochs: int) -> Iterator[dict[str, int]]:
        """Yield the arguments of `fit`: first for the rest of an interrupted epoch, then for all others."""
        self._epochs = epochs
        trained = self.step % self._steps
        if trained and self.step < epochs * self._steps:
            yield self._fit_arguments(self.step // self._steps + 1, self._steps - trained)
        if self.step < epochs * self._steps:
            yield self._fit_arguments(epochs, self._steps)

    def time_input(self, batches: tf.distribute.DistributedDataset) -> TimedBatches:
        """Return an iterator over `batches` that measures how long the training steps wait for it."""
        self._input = TimedBatches(batches, self._waited())
        self._timer.skip_next_call()  # a tf.function is traced and compiled again for a new iterator
        return self._input

    def instrument(self, model: tf.keras.Model, validation: Any = None) -> None:
        """Replace the train function of `model` by one that measures how long `fit` waits for input.

        It runs Keras' own train step in the host loop of the TPU guide. After each epoch it evaluates
        `validation`, batches of `read_once`: `fit` would need to know their number, and would count the
        padding of the last one.
        """
        strategy = model.distribute_strategy
        if self.steps_per_call < min(self._options.steps_per_call, self._steps):
            say(f"{self.steps_per_call} steps per call: a call has to end where the epoch ends")

        @tf.function
        def train(batches: TimedBatches, steps: tf.Tensor) -> None:
            for _ in tf.range(steps):
                strategy.run(model.train_step, args=(next(batches),))

        @tf.function
        def test(batch: Any) -> None:
            strategy.run(model.test_step, args=(batch,))

        def train_function(batches: Any) -> Any:
            if self._input is None or self._input.batches is not batches:
                self.time_input(batches)
            train(self._input, tf.constant(self.steps_per_call))
            return model.get_metrics_result()

        def make_train_function(force: bool = False) -> Any:
            model.train_function = train_function
            return train_function

        def validate() -> dict[str, float]:
            model.reset_metrics()
            for batch in validation:
                test(batch)
            return {f"val_{name}": float(value) for name, value in model.get_metrics_result().items()}

        model.make_train_function = make_train_function
        if validation is not None:
            self._validate = validate

    def add_estimate(self, build: Callable[[], tf.keras.Model], shape: tuple[int, ...], dtype: Any) -> None:
        """Make `finish` print the least time of a step on a TPU; see `roofline.estimate`."""
        slots = sum(math.prod(variable.shape) for variable in _variables(self._optimizer))
        self._estimate = lambda type: estimate(build, shape, dtype, self._batch, slots, type)

    def report(self, epoch: int, **metrics: float) -> None:
        """Print the metrics and the speed of an epoch, and write them to TensorBoard."""
        metrics = {name: float(value) for name, value in metrics.items()}
        line = "  ".join([f"epoch {epoch:2d}", *(f"{name} {value:.4f}" for name, value in metrics.items())])
        speed = self._timer.lap()
        if speed.steps:
            line += f"  {speed.step_ms:,.1f} ms/step  {speed.rate(self._batch):,.0f} examples/s"
            metrics |= speed.figures(self._batch)
        self._metrics = metrics
        say(line)
        kind = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=kind)
        with self._writer.as_default(step=self.step):
            for name, value in metrics.items():  # tf.summary.scalar would need the tensorboard package
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
        self._writer.flush()

    def finish(self, **result: float) -> None:
        """Save a checkpoint, print the speed and the roofline estimate, and write result.json.

        result.json has the metrics of the last epoch and `result`; its speed (`Speed.figures`) is of all
        steps since the start of the program, except the first call. A run with no steps left to train
        updates the existing file.
        """
        self._save()
        result = {**self._metrics, **result}
        speed = self._timer.total
        if speed.steps:
            say(speed.advice(self._batch))
            result |= speed.figures(self._batch)
        if self._estimate:
            for type in self._options.accelerator.split(","):
                say(self._estimate(type))
        if self._folders.outputs:
            tf.io.gfile.makedirs(self._folders.outputs)
            file = os.path.join(self._folders.outputs, "result.json")
            existing = json.loads(_read(file)) if tf.io.gfile.exists(file) else {}
            with tf.io.gfile.GFile(file, "w") as stream:
                stream.write(json.dumps({**existing, "step": self.step, **result}))

    def save_weights(self, model: tf.keras.Model, name: str) -> None:
        """Write the weights of `model` to NAME.weights.h5 in the output folder."""
        if not self._folders.outputs:
            return
        tf.io.gfile.makedirs(self._folders.outputs)
        file = f"{name}.weights.h5"
        with tempfile.TemporaryDirectory() as folder:  # HDF5 seeks, which gs:// files cannot
            model.save_weights(os.path.join(folder, file))
            tf.io.gfile.copy(os.path.join(folder, file), os.path.join(self._folders.outputs, file), True)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start the timer."""
        self._timer.start(self._waited())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start the profiler before the call that --profile selects."""
        self._profile()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps of a call; save and stop if due."""
        self._end_call(self.steps_per_call)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Evaluate, and report the metrics of the epoch."""
        self._timer.stop(self._waited())
        self.report(epoch + 1, **(logs or {}), **({} if self._stop else self._validate()))
        self._end_of_epoch(self._epochs)

    def _end_of_epoch(self, epochs: int) -> None:
        """Save after the last epoch; before it, save and stop if due."""
        if self.step < epochs * self._steps:
            self._save_or_stop(self._steps)
        else:
            self._save()

    def _fit_arguments(self, last: int, steps: int) -> dict[str, int]:
        return {"initial_epoch": self.step // self._steps, "epochs": last, "steps_per_epoch": steps}

    def _end_call(self, steps: int) -> None:
        self._step.assign_add(steps)
        self._timer.count(steps, self._waited)
        if self._profiling:
            self._profiling = False
            self._timer.stop(self._waited())
            tf.profiler.experimental.stop()
            self._timer.start(self._waited())
        if self.step % self._steps:  # at the end of an epoch, its metrics are reported first
            self._save_or_stop(steps)

    def _save_or_stop(self, steps: int) -> None:
        """After a call of `steps` steps: save a checkpoint if due; exit if a stop is due."""
        reached = self._until_stop() <= 0
        if self._stop or reached or self.step % (self._options.checkpoint_every or self._steps) < steps:
            self._save()
        if self._stop or reached:
            say(f"stopped at step {self.step}")
            raise SystemExit(STOPPED if self._stop else 0)

    def _until_stop(self) -> int:
        last = self._options.stop_after
        return sys.maxsize if last is None else int(last) - self.step

    def _on_signal(self, number: int, frame: Any) -> None:
        self._stop = True

    def _restore(self, tracked: dict[str, Any]) -> tf.train.CheckpointManager | None:
        if not self._folders.checkpoints:
            return None
        checkpoint = tf.train.Checkpoint(**_trackable(tracked))
        keep = self._options.keep_checkpoints or None
        manager = tf.train.CheckpointManager(checkpoint, self._folders.checkpoints, max_to_keep=keep)
        if manager.latest_checkpoint:
            try:
                checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
            except (AssertionError, ValueError) as error:
                raise SystemExit(f"{manager.latest_checkpoint} is from another model: {error}") from error
            batch, steps = self._shape.numpy().tolist()
            if (batch, steps) != (self._batch, self._steps):
                raise SystemExit(
                    f"{manager.latest_checkpoint} has epochs of {steps} steps of {batch} examples;"
                    f" this run has {self._steps} steps of {self._batch}."
                    f" Give --batch {batch}, or another --out."
                )
            say(f"resuming from {manager.latest_checkpoint}")
        return manager

    def _save(self) -> None:
        if self._manager and not str(self._manager.latest_checkpoint).endswith(f"-{self.step}"):
            self._timer.stop(self._waited())
            say(f"checkpoint {self._manager.save(checkpoint_number=self.step)}")
            self._timer.start(self._waited())

    def _open_events(self) -> tf.summary.SummaryWriter:
        folder = self._folders.tensorboard
        return tf.summary.create_file_writer(folder) if folder else tf.summary.create_noop_writer()

    def _profile(self) -> None:
        """Profile the second call: the first one compiles."""
        self._calls += 1
        if self._options.profile and self._folders.tensorboard and self._calls == 2:
            tf.profiler.experimental.start(self._folders.tensorboard)
            self._profiling = True

    def _waited(self) -> float:
        return self._input.seconds if self._input else 0.0


class _OutputFolders(NamedTuple):
    checkpoints: str | None
    tensorboard: str | None
    outputs: str | None


def _output_folders(out: str | None) -> _OutputFolders:
    """Return the folders below --out, else those that tpuctl sets, else folders below TPUCTL_MODEL_DIR."""
    folder = out or os.environ.get("TPUCTL_MODEL_DIR")
    below = [folder and os.path.join(folder, name) for name in ("checkpoints", "tensorboard", "outputs")]
    if out:
        return _OutputFolders(*below)
    checkpoints, tensorboard = map(os.environ.get, ("TPUCTL_CHECKPOINT_DIR", "TPUCTL_TENSORBOARD_DIR"))
    return _OutputFolders(checkpoints or below[0], tensorboard or below[1], folder)


def _trackable(tracked: dict[str, Any]) -> dict[str, Any]:
    """Return the objects to checkpoint, with the variables that Keras 3 hides: metrics, seeds of dropout."""
    objects = {
        name: value.variables if isinstance(value, tf.keras.metrics.Metric) else value
        for name, value in tracked.items()
    }
    if "model" in objects:
        objects["state"] = list(objects["model"].non_trainable_variables)
    return objects


def _read(file: str) -> str:
    with tf.io.gfile.GFile(file) as stream:
        return str(stream.read())


def _variables(optimizer: Any) -> list[Any]:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)  # Keras 2 had a method, later a property


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of `number` up to `most`."""
    return next(divisor for divisor in range(max(min(most, number), 1), 0, -1) if number % divisor == 0)
