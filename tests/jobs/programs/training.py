"""Looks at what the jobs share: reading, the roofline model, waiting for input, going on. Prints JSON."""

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
from training.roofline import expected, products
from training.speed import Clock

from tests.jobs import figures, runs

BATCH = 8
FOLDER = Path(sys.argv[1])
SEEN: dict[str, Any] = {}


def number(record: tf.Tensor) -> tuple[tf.Tensor]:
    """Return the only number of an example."""
    features = {"number": tf.io.FixedLenFeature([], tf.int64)}
    return (tf.io.parse_single_example(record, features)["number"],)


def context(host: int = 0, hosts: int = 1) -> tf.distribute.InputContext:
    """Return what a host with one replica is told."""
    return tf.distribute.InputContext(hosts, host, num_replicas_in_sync=hosts)


def batches(count: int, step: int = 0, host: int = 0, hosts: int = 1, **options: Any) -> list[Any]:
    """Return so many batches of the numbers, as lists."""
    split = training.find_split(str(FOLDER / "numbers"), "train")
    found = training.read(split, context(host, hosts), BATCH, number, step=step, **{"seed": 3, **options})
    return [[tensor.numpy().tolist() for tensor in one] for one in found.take(count)]


def seeded(value: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Give an example its seed."""
    return value, seed


def read() -> None:
    """Look at the order of the batches."""
    SEEN["stream"] = [value for (one,) in batches(14) for value in one]
    SEEN["again"] = batches(14) == batches(14)
    SEEN["other seed"] = batches(2) != batches(2, seed=4)
    for name, options in {
        "kept": {},
        "read anew": {"cache": False, "shuffle": 10},
        "augmented": {"augment": seeded},
        "augmented anew": {"cache": False, "augment": seeded},
    }.items():
        whole = batches(12, **options)
        SEEN[f"goes on, {name}"] = [
            step for step in range(12) if batches(1, step, **options) != [whole[step]]
        ]
    seeds = [tuple(seed) for _, some in batches(14, augment=seeded) for seed in some]
    SEEN["seeds"] = [len(set(seeds)), len(seeds)]
    hosts = [[value for (one,) in batches(10, host=host, hosts=2) for value in one] for host in (0, 1)]
    SEEN["hosts"] = hosts
    shared = [
        {tuple(one) for _, some in batches(9, host=host, hosts=2, augment=seeded) for one in some}
        for host in (0, 1)
    ]
    SEEN["seeds of two hosts"] = len(shared[0] & shared[1])
    SEEN["too few shards"] = runs.refusal(lambda: batches(1, hosts=5))


def read_once() -> None:
    """Look at an evaluation's batches."""
    split = training.find_split(str(FOLDER / "numbers"), "train")
    for hosts in (1, 2):
        found = [
            [one.numpy().tolist() for one in batch]
            for host in range(hosts)
            for batch in training.read_once(split, context(host, hosts), BATCH, number)
        ]
        SEEN[f"once, {hosts}"] = {
            "values": [
                value
                for values, weights in found
                for value, weight in zip(values, weights, strict=True)
                if weight
            ],
            "weights": sorted({weight for _, weights in found for weight in weights}),
            "sizes": sorted({len(values) for values, _ in found}),
            "places": sum(len(values) for values, _ in found),
            "sum": sum(sum(weights) for _, weights in found),
        }


def count() -> None:
    """Count the work of small networks."""
    layers = tf.keras.layers

    def work(*some: Any, shape: tuple[int, ...]) -> list[int]:
        model = tf.keras.Sequential([tf.keras.Input(shape[1:]), *some])
        return [one.flops for one in products(model, shape, tf.float32)]

    SEEN["dense"] = work(layers.Dense(50), layers.Dense(10), shape=(8, 100))
    SEEN["convolution"] = work(layers.Conv2D(16, 3), layers.Conv2D(4, 5, strides=2), shape=(2, 12, 12, 3))
    SEEN["einsum"] = work(layers.EinsumDense("abc,cd->abd", output_shape=(None, 6)), shape=(2, 5, 7))
    SEEN["ellipsis"] = work(layers.EinsumDense("...c,cd->...d", output_shape=6), shape=(2, 5, 7))
    wide = lambda: tf.keras.Sequential([tf.keras.Input((4096,)), layers.Dense(4096)])  # noqa: E731
    SEEN["compute"] = expected(wide, (4096,), tf.float32, 4 * 65536, 0, "v3-8")
    SEEN["memory"] = expected(wide, (4096,), tf.float32, 8, 0, "v3-8")
    SEEN["unknown"] = expected(wide, (4096,), tf.float32, 8, 0, "v9-8")


def measure() -> None:
    """Train with an input that is slow, and with one that is not."""
    now = iter((0.0, 10.0, 12.0, 20.0, 21.0, 22.0))
    real, time.perf_counter = time.perf_counter, lambda: next(now)
    clock = Clock()
    clock.start(0.0)
    clock.count(5, lambda: 3.0)  # the first call compiles: at 10.0 it begins to count
    clock.stop(3.0)
    clock.start(3.0)  # at 12.0
    clock.count(4, lambda: 5.0)
    clock.stop(5.0)  # at 20.0
    SEEN["lap"] = [*clock.lap(), clock.lap().steps, *clock.total]
    time.perf_counter = real
    slow = lambda value: tf.py_function(lambda one: time.sleep(0.05) or one, [value], tf.float32)  # noqa: E731
    SEEN["waiting"] = {}
    for name, delay, size in (("slow input", slow, 10), ("slow step", lambda value: value, 1500)):
        layers = [tf.keras.Input((size,)), *(tf.keras.layers.Dense(size) for _ in range(3))]
        model = tf.keras.Sequential(layers)
        optimizer = tf.keras.optimizers.SGD(0.0)
        options = training.parser("", epochs=2, batch=40, steps_per_call=5).parse_args([])
        progress = training.Progress(options, 10, 40, optimizer=optimizer, model=model)
        model.compile(optimizer, "mse", steps_per_execution=5, jit_compile=False)
        progress.watch(model)
        one = tf.data.Dataset.from_tensors(tf.ones(size)).repeat()
        data = one.batch(40, drop_remainder=True).map(
            lambda value, delay=delay, size=size: (tf.ensure_shape(delay(value), (40, size)),) * 2
        )
        for part in progress.parts(2):
            model.fit(data, callbacks=[progress], verbose=0, **part)
        SEEN["waiting"][name] = progress._clock.total.waiting


def go_on() -> None:
    """Stop jobs anywhere, and let them go on."""
    small = ["--data", str(FOLDER / "mnist"), "--batch", "16", "--epochs", "3"]
    for name, main, more in (
        ("fit", fashion_mnist.main, ["--steps-per-call", "2"]),
        ("loop", mnist_custom_loop.main, ["--filters", "4"]),
    ):
        place = FOLDER / name
        whole = runs.run(main, *small, *more, "--out", place / "whole")
        for stop in (4, 6):
            runs.run(main, *small, *more, "--out", place / "parts", "--stop-after", str(stop))
        rest = runs.run(main, *small, *more, "--out", place / "parts")
        SEEN[name] = {
            "unlike": runs.differing(*(runs.weights(place / one) for one in ("whole", "parts"))),
            "figures": [figures.of(whole), figures.of(rest)],
            "rest": rest,
            "results": [
                json.loads((place / one / "outputs/result.json").read_text()) for one in ("whole", "parts")
            ],
        }
        again = place / "again"
        runs.run(main, *small, *more, "--out", again)
        SEEN[name]["unlike again"] = runs.differing(runs.weights(place / "whole"), runs.weights(again))
    SEEN["weights"] = [path.name for path in (FOLDER / "fit/whole/outputs").iterdir()]


def terminate() -> None:
    """Get SIGTERM in the middle of an epoch."""
    arguments = ["--data", FOLDER / "mnist", "--batch", "16", "--epochs", "3", "--out", FOLDER / "terminated"]
    real = training.Progress.on_train_batch_begin

    def begin(progress: training.Progress, batch: int, logs: Any = None) -> None:
        if progress.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    training.Progress.on_train_batch_begin = begin
    try:
        runs.run(fashion_mnist.main, *arguments, "--steps-per-call", "1")
    except SystemExit as end:
        SEEN["code"] = end.code
    training.Progress.on_train_batch_begin = real
    SEEN["went on"] = runs.run(fashion_mnist.main, *arguments)
    SEEN["checkpoints"] = sorted(path.name for path in (FOLDER / "terminated/checkpoints").glob("*.index"))
    other = ["--data", FOLDER / "mnist", "--batch", "16", "--out", FOLDER / "loop/whole"]
    done = FOLDER / "terminated"
    before = json.loads((done / "outputs/result.json").read_text())
    runs.run(fashion_mnist.main, *arguments)
    SEEN["once more"] = [before, json.loads((done / "outputs/result.json").read_text())]
    SEEN["other batch"] = runs.refusal(lambda: runs.run(fashion_mnist.main, *arguments, "--batch", "8"))
    SEEN["other model"] = runs.refusal(lambda: runs.run(fashion_mnist.main, *other))


def watch() -> None:
    """Look at what TensorBoard is left."""
    small = ["--data", FOLDER / "mnist", "--batch", "16", "--epochs", "2", "--steps-per-call", "1"]
    runs.run(fashion_mnist.main, *small, "--out", FOLDER / "profiled", "--profile")
    SEEN["profiles"] = len(list((FOLDER / "profiled/tensorboard").rglob("*.xplane.pb")))
    (events,) = (FOLDER / "profiled/tensorboard").glob("events*")
    SEEN["curves"] = sorted(
        {
            (value.tag, event.step)
            for event in tf.compat.v1.train.summary_iterator(str(events))
            for value in event.summary.value
        }
    )


def find_places() -> None:
    """Be told of one folder for all, as by --out, but by the environment."""
    small = ["--data", FOLDER / "mnist", "--batch", "16", "--epochs", "1"]
    os.environ["TPUCTL_MODEL_DIR"] = str(FOLDER / "model")
    SEEN["two types"] = runs.run(fashion_mnist.main, *small, "--accelerator", "v4-8,v6e-4")
    del os.environ["TPUCTL_MODEL_DIR"]
    found = (FOLDER / "model").iterdir()
    SEEN["places"] = sorted(path.name for path in found)


def refuse() -> None:
    """Ask for what cannot be."""
    for name, arguments in {
        "no data": [],
        "no shards": ["--data", str(FOLDER)],
        "no test split": ["--data", str(FOLDER / "numbers")],
        "too large a batch": ["--data", str(FOLDER / "mnist"), "--batch", "1000"],
    }.items():
        SEEN[name] = runs.refusal(lambda arguments=arguments: runs.run(fashion_mnist.main, *arguments))
    SEEN["digits without data"] = runs.refusal(lambda: runs.run(digits.main))


if __name__ == "__main__":
    os.environ.pop("TPUCTL_DATA_DIR", None)
    for look in (read, read_once, count, measure, go_on, terminate, watch, find_places, refuse):
        look()
    print(json.dumps(SEEN))
