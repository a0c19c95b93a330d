"""The time of a training step, and the share of it spent waiting for input."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

ADVICE = (
    (
        0.25,
        "the input pipeline limits the speed. Cache the examples in memory, make images smaller"
        " (tpuctl data upload --resize), or do less work per example on the host",
    ),
    (0.05, "profile the input pipeline (--profile) before you make the model faster"),
    (0.0, "the input pipeline keeps up"),
)
"""Least share of the time waiting for input -> the advice."""


class Speed(NamedTuple):
    """The time that a number of steps took."""

    steps: int
    seconds: float
    waited: float
    """Seconds of these spent waiting for input."""

    def plus(self, other: Speed) -> Speed:
        """Return the sum of both."""
        return Speed(self.steps + other.steps, self.seconds + other.seconds, self.waited + other.waited)

    @property
    def step_ms(self) -> float:
        """Milliseconds per step."""
        return 1000 * self.seconds / self.steps

    @property
    def waiting(self) -> float:
        """Share of the time spent waiting for input, 0 to 1."""
        return min(self.waited / self.seconds, 1.0)

    def rate(self, batch: int) -> float:
        """Return examples per second."""
        return self.steps * batch / self.seconds

    def figures(self, batch: int) -> dict[str, float]:
        """Return the speed as TensorBoard and result.json have it: all three of the same steps."""
        return {
            "step_ms": self.step_ms,
            "examples_per_second": self.rate(batch),
            "waiting_for_input": self.waiting,
        }

    def advice(self, batch: int) -> str:
        """Return a sentence with the speed, and what to do if the steps wait for input."""
        advice = next(advice for least, advice in ADVICE if self.waiting >= least)
        return (
            f"measured: {self.step_ms:,.1f} ms/step, {self.rate(batch):,.0f} examples/s,"
            f" {self.waiting:.0%} of the time waiting for input: {advice}"
        )


class StepTimer:
    """Adds up the time of steps, per lap and in total, without the first call, which traces and compiles."""

    def __init__(self) -> None:
        self.total = self._lap = Speed(0, 0.0, 0.0)
        self._steps = 0
        self._warm = False
        self._began: tuple[float, float] | None = None

    def start(self, waited: float) -> None:
        """Start the timer; `waited` is the total time waiting for input so far, in seconds."""
        self._began = (time.perf_counter(), waited)

    def skip_next_call(self) -> None:
        """Leave the next call out of the measurement."""
        self._warm = False

    def count(self, steps: int, waited: Callable[[], float]) -> None:
        """Count the steps of a call that has ended."""
        if self._warm:
            self._steps += steps
        else:
            self._warm = True
            self.start(waited())

    def stop(self, waited: float) -> None:
        """Stop the timer and add the time since the start; does nothing if it is stopped."""
        if self._began and self._steps:
            spent = Speed(self._steps, time.perf_counter() - self._began[0], waited - self._began[1])
            self._lap, self.total = self._lap.plus(spent), self.total.plus(spent)
        self._began, self._steps = None, 0

    def lap(self) -> Speed:
        """Return the steps and their time since the last lap."""
        lap, self._lap = self._lap, Speed(0, 0.0, 0.0)
        return lap


class TimedBatches:
    """An iterator over a distributed dataset that measures, in a tf.function, how long `next` waits."""

    def __init__(self, batches: Any, before: float = 0.0) -> None:
        """Start at `before` seconds, the time that earlier iterators waited."""
        self.batches = iter(batches)
        self._seconds = tf.Variable(before, dtype=tf.float64, trainable=False)

    def __next__(self) -> Any:
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            batch = next(self.batches)
        with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            self._seconds.assign_add(tf.timestamp() - began)
        return batch

    @property
    def seconds(self) -> float:
        """Total seconds of waiting so far."""
        return float(self._seconds.numpy())
