"""Where a training stands: it goes on from the last checkpoint, saves the next ones, measures and tells."""

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
from training.roofline import expected
from training.speed import Clock, Waiting

STOPPED = 143
"""Exit code after SIGTERM, 128 + 15: the host goes away, and another can go on from the checkpoint."""


class Progress(tf.keras.callbacks.Callback):
    """How far a training has come, for a loop of one's own and as a callback of Keras' `fit`.

    In a loop, `epochs` and `calls` say what is left to do, and `report` is given the numbers. With Keras,
    `watch` is told of the model, and `parts` gives arguments of `fit`. What is tracked (model, optimizer,
    perhaps metrics) has to be built: it is restored here, from the last checkpoint. On SIGTERM the call under
    way is ended, saved, and the program ends with 143.
    """

    def __init__(
        self, options: argparse.Namespace, steps: int, batch: int, *, optimizer: Any, **tracked: Any
    ) -> None:
        """Restore; `steps` is those of an epoch, `batch` that of all replicas."""
        super().__init__()
        self._options = options
        self._steps = steps
        self._batch = batch
        self._optimizer = optimizer
        self._stop = False
        self._epochs = 0
        self._calls = 0
        self._profiling = False
        self._numbers: dict[str, float] = {}
        self._clock = Clock()
        self._waiting: Waiting | None = None
        self._expected: Callable[[str], str] | None = None
        self._validate: Callable[[], dict[str, float]] = dict
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._shape = tf.Variable([batch, steps], dtype=tf.int64, trainable=False)
        self._places = _places(options.out)
        self._writer = self._open_events()
        self._manager = self._restore(
            {**tracked, "optimizer": optimizer, "step": self._step, "shape": self._shape}
        )
        self.steps_per_call = _divisor(math.gcd(steps, self.step), options.steps_per_call)
        signal.signal(signal.SIGTERM, self._on_signal)

    @property
    def step(self) -> int:
        """Steps that are done."""
        return int(self._step.numpy())

    def epochs(self, epochs: int) -> Iterator[int]:
        """Yield the number of each epoch up to `epochs` that is not done; the first is 1."""
        while self.step < epochs * self._steps:
            yield self.step // self._steps + 1
            self._end_of_epoch(epochs)

    def calls(self, most: int | None = None) -> Iterator[int]:
        """Yield how many steps to do next, `most` or as --steps-per-call says, to the end of the epoch."""
        self._clock.start(self._waited())
        left = self._steps - self.step % self._steps
        while left:
            steps = min(most or self._options.steps_per_call, left, max(self._until_stop(), 1))
            self._profile()
            yield steps
            self._done(steps)
            left -= steps
        self._optimizer.iterations.numpy()  # a TPU is given work ahead; this waits until it is done
        self._clock.stop(self._waited())

    def parts(self, epochs: int) -> Iterator[dict[str, int]]:
        """Yield the arguments of `fit` for the rest of an epoch that was begun, then for the others."""
        self._epochs = epochs
        begun = self.step % self._steps
        if begun and self.step < epochs * self._steps:
            yield self._part(self.step // self._steps + 1, self._steps - begun)
        if self.step < epochs * self._steps:
            yield self._part(epochs, self._steps)

    def wait_for(self, batches: Any) -> Waiting:
        """Return `batches`, whose `next` in a tf.function measures how long it waits."""
        self._waiting = Waiting(batches, self._waited())
        self._clock.cool()  # what takes its batches from it is traced and compiled anew
        return self._waiting

    def watch(self, model: tf.keras.Model, validation: Any = None) -> None:
        """Run Keras' own steps in the loop of the TPU guide, which measures how long `fit` waits for input.

        After each epoch come the numbers for `validation`, batches of `read_once`: `fit` itself would want to
        know their number, and count places of the last batch that are empty.
        """
        strategy = model.distribute_strategy
        if self.steps_per_call < min(self._options.steps_per_call, self._steps):
            say(f"{self.steps_per_call} steps a call: no larger number that is allowed divides the epoch")

        @tf.function
        def train(waiting: Waiting, steps: tf.Tensor) -> None:
            for _ in tf.range(steps):
                strategy.run(model.train_step, args=(next(waiting),))

        @tf.function
        def test(batch: Any) -> None:
            strategy.run(model.test_step, args=(batch,))

        def train_function(batches: Any) -> Any:
            if self._waiting is None or self._waiting.batches is not batches:
                self.wait_for(batches)
            train(self._waiting, tf.constant(self.steps_per_call))
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

    def expect(self, build: Callable[[], tf.keras.Model], shape: tuple[int, ...], dtype: Any) -> None:
        """Tell at the end what a TPU is expected to need for such a model and inputs; see `roofline`."""
        slots = sum(math.prod(one.shape) for one in _variables(self._optimizer))
        self._expected = lambda type: expected(build, shape, dtype, self._batch, slots, type)

    def report(self, epoch: int, **numbers: float) -> None:
        """Print an epoch's numbers and its speed, and add them to TensorBoard's curves."""
        numbers = {name: float(value) for name, value in numbers.items()}
        line = "  ".join([f"epoch {epoch:2d}", *(f"{name} {value:.4f}" for name, value in numbers.items())])
        speed = self._clock.lap()
        if speed.steps:
            line += f"  {speed.step_ms:,.1f} ms/step  {speed.rate(self._batch):,.0f} examples/s"
            numbers |= {"step_ms": speed.step_ms, "examples_per_second": speed.rate(self._batch)}
            numbers |= {"waiting_for_input": speed.waiting}
        self._numbers = numbers
        say(line)
        kind = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=kind)
        with self._writer.as_default(step=self.step):
            for name, value in numbers.items():  # tf.summary.scalar would need the tensorboard package
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
        self._writer.flush()

    def finish(self, **result: float) -> None:
        """Save, say how fast it went and what a TPU is expected to need, and write result.json.

        It has the last epoch's numbers and `result`; a run that had nothing left to do adds to what is there.
        """
        self._save()
        result = {**self._numbers, **result}
        speed = self._clock.total
        if speed.steps:
            say(speed.advice(self._batch))
            result |= {"step_ms": speed.step_ms, "waiting_for_input": speed.waiting}
        if self._expected:
            for type in self._options.accelerator.split(","):
                say(self._expected(type))
        if self._places.outputs:
            tf.io.gfile.makedirs(self._places.outputs)
            file = os.path.join(self._places.outputs, "result.json")
            before = json.loads(_read(file)) if tf.io.gfile.exists(file) else {}
            with tf.io.gfile.GFile(file, "w") as stream:
                stream.write(json.dumps({**before, "step": self.step, **result}))

    def save_weights(self, model: tf.keras.Model, name: str) -> None:
        """Write the model's weights to NAME.weights.h5 among the results."""
        if not self._places.outputs:
            return
        tf.io.gfile.makedirs(self._places.outputs)
        file = f"{name}.weights.h5"
        with tempfile.TemporaryDirectory() as folder:  # HDF5 seeks: it cannot be written to gs:// as it goes
            model.save_weights(os.path.join(folder, file))
            tf.io.gfile.copy(os.path.join(folder, file), os.path.join(self._places.outputs, file), True)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin to measure."""
        self._clock.start(self._waited())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Profile, when it is the time."""
        self._profile()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps of a call; save and stop when due."""
        self._done(self.steps_per_call)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tell the epoch's numbers."""
        self._clock.stop(self._waited())
        self.report(epoch + 1, **(logs or {}), **({} if self._stop else self._validate()))
        self._end_of_epoch(self._epochs)

    def _end_of_epoch(self, epochs: int) -> None:
        """Save when due; end the program when that is asked for, unless all is done anyway."""
        if self.step < epochs * self._steps:
            self._save_or_stop(self._steps)
        else:
            self._save()

    def _part(self, last: int, steps: int) -> dict[str, int]:
        return {"initial_epoch": self.step // self._steps, "epochs": last, "steps_per_epoch": steps}

    def _done(self, steps: int) -> None:
        self._step.assign_add(steps)
        self._clock.count(steps, self._waited)
        if self._profiling:
            self._profiling = False
            self._clock.stop(self._waited())
            tf.profiler.experimental.stop()
            self._clock.start(self._waited())
        if self.step % self._steps:  # at an epoch's end, its numbers are told first
            self._save_or_stop(steps)

    def _save_or_stop(self, steps: int) -> None:
        """After a call of so many steps: save when due; end the program when that is asked for."""
        asked = self._until_stop() <= 0
        if self._stop or asked or self.step % (self._options.checkpoint_every or self._steps) < steps:
            self._save()
        if self._stop or asked:
            say(f"stopped at step {self.step}")
            raise SystemExit(STOPPED if self._stop else 0)

    def _until_stop(self) -> int:
        last = self._options.stop_after
        return sys.maxsize if last is None else int(last) - self.step

    def _on_signal(self, number: int, frame: Any) -> None:
        self._stop = True

    def _restore(self, tracked: dict[str, Any]) -> tf.train.CheckpointManager | None:
        if not self._places.checkpoints:
            return None
        checkpoint = tf.train.Checkpoint(**_trackable(tracked))
        manager = tf.train.CheckpointManager(checkpoint, self._places.checkpoints, max_to_keep=3)
        if manager.latest_checkpoint:
            try:
                checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
            except (AssertionError, ValueError) as error:
                raise SystemExit(f"{manager.latest_checkpoint} is of another model: {error}") from error
            batch, steps = self._shape.numpy().tolist()
            if (batch, steps) != (self._batch, self._steps):
                raise SystemExit(
                    f"{manager.latest_checkpoint} is of epochs of {steps} steps of {batch} examples;"
                    f" these would have {self._steps} of {self._batch}."
                    f" Give --batch {batch}, or another --out."
                )
            say(f"going on from {manager.latest_checkpoint}")
        return manager

    def _save(self) -> None:
        if self._manager and not str(self._manager.latest_checkpoint).endswith(f"-{self.step}"):
            self._clock.stop(self._waited())
            say(f"checkpoint {self._manager.save(checkpoint_number=self.step)}")
            self._clock.start(self._waited())

    def _open_events(self) -> tf.summary.SummaryWriter:
        place = self._places.tensorboard
        return tf.summary.create_file_writer(place) if place else tf.summary.create_noop_writer()

    def _profile(self) -> None:
        """Profile the second call: it is compiled by then."""
        self._calls += 1
        if self._options.profile and self._places.tensorboard and self._calls == 2:
            tf.profiler.experimental.start(self._places.tensorboard)
            self._profiling = True

    def _waited(self) -> float:
        return self._waiting.seconds if self._waiting else 0.0


class _Places(NamedTuple):
    checkpoints: str | None
    tensorboard: str | None
    outputs: str | None


def _places(out: str | None) -> _Places:
    """Return where files go: below --out, else where tpuctl says, at the least below TPUCTL_MODEL_DIR."""
    folder = out or os.environ.get("TPUCTL_MODEL_DIR")
    below = [folder and os.path.join(folder, name) for name in ("checkpoints", "tensorboard", "outputs")]
    if out:
        return _Places(*below)
    checkpoints, tensorboard = map(os.environ.get, ("TPUCTL_CHECKPOINT_DIR", "TPUCTL_TENSORBOARD_DIR"))
    return _Places(checkpoints or below[0], tensorboard or below[1], folder)


def _trackable(tracked: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint takes; Keras 3 hides metrics from it, and the seeds of a model's dropout."""
    found = {
        name: one.variables if isinstance(one, tf.keras.metrics.Metric) else one
        for name, one in tracked.items()
    }
    if "model" in found:
        found["state"] = list(found["model"].non_trainable_variables)
    return found


def _read(file: str) -> str:
    with tf.io.gfile.GFile(file) as stream:
        return str(stream.read())


def _variables(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)  # Keras 2 has had both


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of `number` up to `most`."""
    return next(one for one in range(max(min(most, number), 1), 0, -1) if number % one == 0)
