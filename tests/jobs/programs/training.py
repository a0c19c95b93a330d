"""Runs the package `training`: batches, the roofline model, waiting for input, resuming. Prints JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import digits
import fashion_mnist
import mnist_custom_loop
import tensorflow as tf
import training
from training.roofline import estimate, products
from training.speed import StepTimer

from tests.jobs import figures, runs

BATCH = 8
FOLDER = Path(sys.argv[1])
REPORT: dict[str, Any] = {}


def number(record: tf.Tensor) -> tuple[tf.Tensor]:
    """Return the only number of an example."""
    features = {"number": tf.io.FixedLenFeature([], tf.int64)}
    return (tf.io.parse_single_example(record, features)["number"],)


def context(host: int = 0, hosts: int = 1) -> tf.distribute.InputContext:
    """Return the input context of a host with one replica."""
    return tf.distribute.InputContext(hosts, host, num_replicas_in_sync=hosts)


def batches(count: int, step: int = 0, host: int = 0, hosts: int = 1, **options: Any) -> list[Any]:
    """Return `count` batches of the numbers, as lists."""
    split = training.find_split(str(FOLDER / "numbers"), "train")
    dataset = training.read(split, context(host, hosts), BATCH, number, step=step, **{"seed": 3, **options})
    return [[tensor.numpy().tolist() for tensor in batch] for batch in dataset.take(count)]


def seeded(value: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return an example with its seed."""
    return value, seed


def read() -> None:
    """Report on the order of the batches."""
    REPORT["stream"] = [value for (batch,) in batches(14) for value in batch]
    REPORT["again"] = batches(14) == batches(14)
    REPORT["other seed"] = batches(2) != batches(2, seed=4)
    for name, options in {
        "cached": {},
        "not cached": {"cache": False, "shuffle": 10},
        "augmented": {"augment": seeded},
        "augmented, not cached": {"cache": False, "augment": seeded},
    }.items():
        full = batches(12, **options)
        REPORT[f"resumed, {name}"] = [
            step for step in range(12) if batches(1, step, **options) != [full[step]]
        ]
    seeds = [tuple(seed) for _, batch in batches(14, augment=seeded) for seed in batch]
    REPORT["seeds"] = [len(set(seeds)), len(seeds)]
    hosts = [[value for (batch,) in batches(10, host=host, hosts=2) for value in batch] for host in (0, 1)]
    REPORT["hosts"] = hosts
    shared = [
        {tuple(seed) for _, batch in batches(9, host=host, hosts=2, augment=seeded) for seed in batch}
        for host in (0, 1)
    ]
    REPORT["seeds of two hosts"] = len(shared[0] & shared[1])
    REPORT["too few shards"] = runs.refusal(lambda: batches(1, hosts=5))


def read_once() -> None:
    """Report on the batches of an evaluation."""
    split = training.find_split(str(FOLDER / "numbers"), "train")
    for hosts in (1, 2):
        evaluated = [
            [tensor.numpy().tolist() for tensor in batch]
            for host in range(hosts)
            for batch in training.read_once(split, context(host, hosts), BATCH, number)
        ]
        REPORT[f"once, {hosts}"] = {
            "values": [
                value
                for values, weights in evaluated
                for value, weight in zip(values, weights, strict=True)
                if weight
            ],
            "weights": sorted({weight for _, weights in evaluated for weight in weights}),
            "sizes": sorted({len(values) for values, _ in evaluated}),
            "padded": sum(len(values) for values, _ in evaluated),
            "sum": sum(sum(weights) for _, weights in evaluated),
        }


def count() -> None:
    """Count the FLOPs of small networks."""
    layers = tf.keras.layers

    def flops(*stack: Any, shape: tuple[int, ...]) -> list[int]:
        model = tf.keras.Sequential([tf.keras.Input(shape[1:]), *stack])
        return [product.flops for product in products(model, shape, tf.float32)]

    REPORT["dense"] = flops(layers.Dense(50), layers.Dense(10), shape=(8, 100))
    REPORT["convolution"] = flops(layers.Conv2D(16, 3), layers.Conv2D(4, 5, strides=2), shape=(2, 12, 12, 3))
    REPORT["einsum"] = flops(layers.EinsumDense("abc,cd->abd", output_shape=(None, 6)), shape=(2, 5, 7))
    REPORT["ellipsis"] = flops(layers.EinsumDense("...c,cd->...d", output_shape=6), shape=(2, 5, 7))
    wide = lambda: tf.keras.Sequential([tf.keras.Input((4096,)), layers.Dense(4096)])  # noqa: E731
    REPORT["compute"] = estimate(wide, (4096,), tf.float32, 4 * 65536, 0, "v3-8")
    REPORT["memory"] = estimate(wide, (4096,), tf.float32, 8, 0, "v3-8")
    REPORT["unknown"] = estimate(wide, (4096,), tf.float32, 8, 0, "v9-8")


def measure() -> None:
    """Measure the waiting of a training with a slow input and of one with a slow step."""
    now = iter((0.0, 10.0, 12.0, 20.0, 21.0, 22.0))
    real, time.perf_counter = time.perf_counter, lambda: next(now)
    timer = StepTimer()
    timer.start(0.0)
    timer.count(5, lambda: 3.0)  # the first call compiles, so the timer starts again at 10.0
    timer.stop(3.0)
    timer.start(3.0)  # at 12.0
    timer.count(4, lambda: 5.0)
    timer.stop(5.0)  # at 20.0
    REPORT["lap"] = [*timer.lap(), timer.lap().steps, *timer.total]
    time.perf_counter = real
    slow = lambda value: tf.py_function(lambda tensor: time.sleep(0.05) or tensor, [value], tf.float32)  # noqa: E731
    REPORT["waiting"] = {}
    for name, delay, size in (("slow input", slow, 10), ("slow step", lambda value: value, 1500)):
        layers = [tf.keras.Input((size,)), *(tf.keras.layers.Dense(size) for _ in range(3))]
        model = tf.keras.Sequential(layers)
        optimizer = tf.keras.optimizers.SGD(0.0)
        options = training.parser("", epochs=2, batch=40, steps_per_call=5).parse_args([])
        progress = training.Progress(options, 10, 40, optimizer=optimizer, model=model)
        model.compile(optimizer, "mse", steps_per_execution=5, jit_compile=False)
        progress.instrument(model)
        examples = tf.data.Dataset.from_tensors(tf.ones(size)).repeat()
        data = examples.batch(40, drop_remainder=True).map(
            lambda value, delay=delay, size=size: (tf.ensure_shape(delay(value), (40, size)),) * 2
        )
        for arguments in progress.fit_arguments(2):
            model.fit(data, callbacks=[progress], verbose=0, **arguments)
        REPORT["waiting"][name] = progress._timer.total.waiting


def resume() -> None:
    """Stop jobs at several steps, and resume them."""
    small = ["--data", str(FOLDER / "mnist"), "--batch", "16", "--epochs", "3"]
    for name, main, more in (
        ("fit", fashion_mnist.main, ["--steps-per-call", "2"]),
        ("custom", mnist_custom_loop.main, ["--filters", "4"]),
    ):
        folder = FOLDER / name
        full = runs.run(main, *small, *more, "--out", folder / "full")
        for stop in (4, 6):
            runs.run(main, *small, *more, "--out", folder / "parts", "--stop-after", str(stop))
        rest = runs.run(main, *small, *more, "--out", folder / "parts")
        REPORT[name] = {
            "differing": runs.differing(*(runs.weights(folder / out) for out in ("full", "parts"))),
            "figures": [figures.of(full), figures.of(rest)],
            "rest": rest,
            "results": [
                json.loads((folder / out / "outputs/result.json").read_text()) for out in ("full", "parts")
            ],
        }
        again = folder / "again"
        runs.run(main, *small, *more, "--out", again)
        REPORT[name]["differing again"] = runs.differing(runs.weights(folder / "full"), runs.weights(again))
    REPORT["weights"] = [path.name for path in (FOLDER / "fit/full/outputs").iterdir()]


def terminate() -> None:
    """Send SIGTERM in the middle of an epoch."""
    arguments = ["--data", FOLDER / "mnist", "--batch", "16", "--epochs", "3", "--out", FOLDER / "terminated"]
    real = training.Progress.on_train_batch_begin

    def begin(progress: training.Progress, batch: int, logs: Any = None) -> None:
        if progress.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    training.Progress.on_train_batch_begin = begin
    try:
        runs.run(fashion_mnist.main, *arguments, "--steps-per-call", "1")
    except SystemExit as end:
        REPORT["code"] = end.code
    training.Progress.on_train_batch_begin = real
    REPORT["after preemption"] = runs.run(fashion_mnist.main, *arguments)
    REPORT["checkpoints"] = sorted(path.name for path in (FOLDER / "terminated/checkpoints").glob("*.index"))
    other = ["--data", FOLDER / "mnist", "--batch", "16", "--out", FOLDER / "custom/full"]
    result = FOLDER / "terminated/outputs/result.json"
    before = json.loads(result.read_text())
    runs.run(fashion_mnist.main, *arguments)
    REPORT["no steps left"] = [before, json.loads(result.read_text())]
    REPORT["other batch"] = runs.refusal(lambda: runs.run(fashion_mnist.main, *arguments, "--batch", "8"))
    REPORT["other model"] = runs.refusal(lambda: runs.run(fashion_mnist.main, *other))


def write_events() -> None:
    """Report on the files for TensorBoard."""
    small = ["--data", FOLDER / "mnist", "--batch", "16", "--epochs", "2", "--steps-per-call", "1"]
    runs.run(fashion_mnist.main, *small, "--out", FOLDER / "profiled", "--profile")
    REPORT["profiles"] = len(list((FOLDER / "profiled/tensorboard").rglob("*.xplane.pb")))
    (events,) = (FOLDER / "profiled/tensorboard").glob("events*")
    REPORT["curves"] = sorted(
        {
            (value.tag, event.step)
            for event in tf.compat.v1.train.summary_iterator(str(events))
            for value in event.summary.value
        }
    )


def write_below_model_folder() -> None:
    """Train with TPUCTL_MODEL_DIR as the only folder."""
    small = ["--data", FOLDER / "mnist", "--batch", "16", "--epochs", "1"]
    os.environ["TPUCTL_MODEL_DIR"] = str(FOLDER / "model")
    REPORT["two types"] = runs.run(fashion_mnist.main, *small, "--accelerator", "v4-8,v6e-4")
    del os.environ["TPUCTL_MODEL_DIR"]
    REPORT["folders"] = sorted(path.name for path in (FOLDER / "model").iterdir())


def make_mistakes() -> None:
    """Run jobs with wrong arguments and datasets."""
    for name, arguments in {
        "no data": [],
        "no shards": ["--data", str(FOLDER)],
        "no test split": ["--data", str(FOLDER / "numbers")],
        "too large a batch": ["--data", str(FOLDER / "mnist"), "--batch", "1000"],
    }.items():
        REPORT[name] = runs.refusal(lambda arguments=arguments: runs.run(fashion_mnist.main, *arguments))
    REPORT["digits without data"] = runs.refusal(lambda: runs.run(digits.main))


if __name__ == "__main__":
    os.environ.pop("TPUCTL_DATA_DIR", None)
    for examine in (
        read,
        read_once,
        count,
        measure,
        resume,
        terminate,
        write_events,
        write_below_model_folder,
        make_mistakes,
    ):
        examine()
    print(json.dumps(REPORT))
