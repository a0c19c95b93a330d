"""The emulated TPU against a MirroredStrategy on the same logical devices; start-up with and without it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import Ratio, Row, ratio, report, rows, side_by_side
from tpuctl.sim.guest import FOLDER, environment

REPLICAS = 2
BATCH = 64
STEPS = {"custom loop": 200, "Keras fit": 60}
"""Workload -> steps per measurement, which take about a second."""
TURNS = 15
STARTS = 15
THREADS = 4
"""Threads within an operation, as the emulation sets them for two replicas."""
SIDES = ("MirroredStrategy", "emulated TPU")

Times = tuple[float, float]


def main() -> None:
    """Measure and report; with the name of a side, run the workloads of that side."""
    if sys.argv[1:]:
        serve(sys.argv[1])
        return
    measured, ratios = [], []
    for workload, timings in steps().items():
        plain, emulated = (timings[side] for side in SIDES)
        measured += rows({f"{workload}, {STEPS[workload]} steps, {side}": timings[side] for side in SIDES})
        ratios.append(ratio(f"{workload}, wall: emulated / plain", emulated, plain, "1.05 at most"))
        ratios.append(ratio(f"{workload}, CPU: emulated / plain", cpu(emulated), cpu(plain), "1.05 at most"))
    started, start_ratios = start_up()
    report("emulated TPU", measured + started, ratios + start_ratios)


def cpu(timings: Sequence[Times]) -> list[Times]:
    """Return the timings with CPU time in place of wall time."""
    return [(used, wall) for wall, used in timings]


def steps() -> dict[str, dict[str, list[Times]]]:
    """Run the workloads in two processes in turn; return (wall, CPU) seconds of each turn."""
    timings: dict[str, dict[str, list[Times]]] = {name: {side: [] for side in SIDES} for name in STEPS}
    with side(SIDES[0]) as plain, side(SIDES[1]) as emulated:
        for turn in range(TURNS + 1):
            for name in STEPS:
                for label, run in zip(SIDES, (plain, emulated), strict=True):
                    timing = run(name)
                    if turn:
                        timings[name][label].append(timing)
    return timings


@contextmanager
def side(name: str) -> Iterator[Callable[[str], Times]]:
    """Start the process of a side; yields a function that runs a workload there."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("TPU")}
    if name == SIDES[1]:
        variables |= environment("v3-8", cores=REPLICAS)
    variables["TF_CPP_MIN_LOG_LEVEL"] = "3"
    command = [sys.executable, "-m", "benchmarks.emulated_tpu", name]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
    }
    with subprocess.Popen(command, env=variables, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(workload: str) -> Times:
            print(workload, file=process.stdin, flush=True)
            wall, used = json.loads(process.stdout.readline())
            return wall, used

        yield run
        process.stdin.close()


def serve(name: str) -> None:
    """Run the workloads named on stdin, one a line; print the seconds of each."""
    workloads = prepare(strategy(name))
    for line in sys.stdin:
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        workloads[line.strip()]()
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        print([wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime], flush=True)


def strategy(name: str) -> Any:
    """Return the strategy of the emulated TPU, or one over the same logical devices."""
    import tensorflow as tf  # noqa: PLC0415  only in the processes that train

    if name == SIDES[1]:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect("local")
        return tf.distribute.TPUStrategy(resolver)
    (host,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * (REPLICAS + 1)
    tf.config.set_logical_device_configuration(host, devices)
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    return tf.distribute.MirroredStrategy([f"CPU:{core + 1}" for core in range(REPLICAS)])


def prepare(strategy: Any) -> dict[str, Callable[[], Any]]:
    """Return a function for each workload that runs its steps."""
    import numpy as np  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    rng = np.random.default_rng(1)
    images = rng.normal(size=(BATCH, 16, 16, 1)).astype("float32")
    data = tf.data.Dataset.from_tensors((images, rng.integers(0, 10, BATCH))).repeat()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model, fitted = _model(tf), _model(tf)
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        fitted.compile("adam", loss)
    batches = iter(strategy.experimental_distribute_dataset(data))

    @tf.function
    def step(batch: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = model(x, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
                mean = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
            gradients = tape.gradient(mean, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return mean

        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    def loop() -> None:
        for _ in range(STEPS["custom loop"]):
            step(next(batches))

    def fit() -> None:
        fitted.fit(data, steps_per_epoch=STEPS["Keras fit"], verbose=0)

    return {"custom loop": loop, "Keras fit": fit}


def _model(tf: Any) -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((16, 16, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def start_up() -> tuple[list[Row], list[Ratio]]:
    """Time an empty program without the simulator's sitecustomize, and with it, inert and active."""
    python = ["env", "-u", "TPUCTL_SIM_TPU", sys.executable, "-c", "pass"]
    guest = ["env", f"PYTHONPATH={FOLDER}", *python[3:]]
    commands = {
        "python -c pass": ["env", "-u", "PYTHONPATH", *python[3:]],
        "python -c pass, guest inert": guest,
        "python -c pass, guest of a v3-8": ["env", "TPUCTL_SIM_TPU=v3-8", *guest[1:]],
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TPU", "PYTHON"))}
    timings = side_by_side(commands, runs=STARTS, environment=inherited)
    plain, *others = commands
    return rows(timings), [
        ratio(f"{name} / without", timings[name], timings[plain], "1.1 at most") for name in others
    ]


if __name__ == "__main__":
    main()
