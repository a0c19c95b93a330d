"""How long a step takes, and how much of that it waits for its input."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

ADVICE = (
    (
        0.25,
        "the input pipeline bounds the training. Keep the examples in memory, make pictures smaller"
        " (tpuctl data upload --resize), or do less to each of them on the host",
    ),
    (0.05, "look at what the host does to each example before the model is made faster (--profile)"),
    (0.0, "the input pipeline keeps up"),
)
"""From which share of waiting on -> what to do about it."""


class Speed(NamedTuple):
    """How fast some steps went."""

    steps: int
    seconds: float
    waited: float
    """Seconds of these in which a step waited for its input."""

    def plus(self, other: Speed) -> Speed:
        """Return both together."""
        return Speed(self.steps + other.steps, self.seconds + other.seconds, self.waited + other.waited)

    @property
    def step_ms(self) -> float:
        """Milliseconds a step."""
        return 1000 * self.seconds / self.steps

    @property
    def waiting(self) -> float:
        """Share of the time in which a step waited for its input, 0 to 1."""
        return min(self.waited / self.seconds, 1.0)

    def rate(self, batch: int) -> float:
        """Return examples a second."""
        return self.steps * batch / self.seconds

    def advice(self, batch: int) -> str:
        """Return how fast it went, and what to do where the steps wait."""
        what = next(what for least, what in ADVICE if self.waiting >= least)
        return (
            f"measured: {self.step_ms:,.1f} ms/step, {self.rate(batch):,.0f} examples/s,"
            f" {self.waiting:.0%} of the time waiting for input: {what}"
        )


class Clock:
    """Adds up the time of steps, of a lap and of all; without the first call, which traces and compiles."""

    def __init__(self) -> None:
        self.total = self._lap = Speed(0, 0.0, 0.0)
        self._steps = 0
        self._warm = False
        self._began: tuple[float, float] | None = None

    def start(self, waited: float) -> None:
        """Let it run; `waited` is the sum of all waiting so far, in seconds."""
        self._began = (time.perf_counter(), waited)

    def cool(self) -> None:
        """Leave the next call out."""
        self._warm = False

    def count(self, steps: int, waited: Callable[[], float]) -> None:
        """Take the steps of a call that has ended."""
        if self._warm:
            self._steps += steps
        else:
            self._warm = True
            self.start(waited())

    def stop(self, waited: float) -> None:
        """Take the time since the start, unless it was taken."""
        if self._began and self._steps:
            spent = Speed(self._steps, time.perf_counter() - self._began[0], waited - self._began[1])
            self._lap, self.total = self._lap.plus(spent), self.total.plus(spent)
        self._began, self._steps = None, 0

    def lap(self) -> Speed:
        """Return the time since the last lap."""
        lap, self._lap = self._lap, Speed(0, 0.0, 0.0)
        return lap


class Waiting:
    """Batches of a distributed dataset whose `next`, in a tf.function, measures how long it waits."""

    def __init__(self, batches: Any, before: float = 0.0) -> None:
        """Take up after `before` seconds of waiting for others."""
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
        """All seconds so far."""
        return float(self._seconds.numpy())
