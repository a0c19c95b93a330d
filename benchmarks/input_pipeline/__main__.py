"""The input pipeline of jobs/resnet.py, compared with one as in tutorials, on the same TFRecord shards."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import show

JOBS = Path(__file__).parents[2] / "jobs"
IMAGES, BATCH = 256, 64
BATCHES = 12
"""Batches per measurement: 768 images, a few seconds."""
TURNS = 7
OURS, NAIVE = "resnet.py", "as in tutorials"
PARALLEL, UNFUSED = f"{NAIVE}, parallel", "resnet.py's recipe, decoded fully"
NORMALISED = "resnet.py, and normalised on the host"
STAGES = {
    NAIVE: "decode all, float32, resize to 256x256, crop 224x224, flip, normalise; sequentially",
    PARALLEL: "the same by map(num_parallel_calls=AUTOTUNE)",
    UNFUSED: "decode all, float32, a part of any size, resize to 224x224, flip, normalise; AUTOTUNE",
    NORMALISED: "as resnet.py, and normalise on the host instead of the TPU",
    OURS: "as in training: decode a part of any size only, uint8, resize to 224x224, flip; AUTOTUNE",
}
RATIOS = (
    (OURS, NAIVE, "1.8 at least"),
    (OURS, PARALLEL, ""),
    (OURS, UNFUSED, ""),
    (NORMALISED, PARALLEL, ""),
)

Times = tuple[float, float]
"""Wall and CPU seconds of a measurement."""


def main() -> None:
    """Measure in another process, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("pictures", IMAGES), ("batches", BATCHES), ("turns", TURNS)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args()
    if options.serve:
        print(json.dumps(measure(options.serve, options.batches, options.turns)))
        return
    from benchmarks.input_pipeline.images import shards  # noqa: PLC0415  scikit-learn takes seconds

    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name:
        folder, size = shards(Path(name), options.pictures)
        command = [sys.executable, "-m", "benchmarks.input_pipeline", f"--serve={folder}"]
        command += [f"--batches={options.batches}", f"--turns={options.turns}"]
        variables = {key: value for key, value in os.environ.items() if not key.startswith("TPU")}
        variables["TF_CPP_MIN_LOG_LEVEL"] = "3"
        process = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    timings = json.loads(process.stdout.splitlines()[-1])
    report(timings, options.batches * BATCH, size // options.pictures)


def measure(folder: Path, batches: int, turns: int) -> dict[str, list[Times]]:
    """Read `batches` batches with each pipeline in turn, after a warm-up turn."""
    builders = pipelines(folder)
    timings: dict[str, list[Times]] = {name: [] for name in builders}
    for turn in range(turns + 1):
        for name, build in builders.items():
            timing = read(build, batches)
            if turn:
                timings[name].append(timing)
    return timings


def read(build: Callable[[], Any], batches: int) -> Times:
    """Read `batches` batches after a first one; then the prefetch buffers are as full as at the end."""
    iterator = iter(build())
    next(iterator)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):
        next(iterator)
    return time.perf_counter() - wall, time.process_time() - cpu


def pipelines(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return a builder of each pipeline by name; all shuffle the same files with the same buffer."""
    sys.path.insert(0, str(JOBS))
    import resnet  # noqa: PLC0415  imports TensorFlow: only in the process that measures
    import tensorflow as tf  # noqa: PLC0415
    import training  # noqa: PLC0415

    split = training.find_split(str(folder), "train")
    alone = tf.distribute.InputContext()

    def ours(augment: Any) -> Any:
        return training.read(
            split, alone, BATCH, resnet.parse, seed=1, augment=augment, cache=False, shuffle=IMAGES
        )

    def normalised(encoded: Any, label: Any, seed: Any) -> Any:
        image, label = resnet.augment(encoded, label, seed)
        return (tf.cast(image, tf.float32) - resnet.MEAN) / resnet.DEVIATION, label

    def mapped(function: Any, calls: int | None) -> Any:
        records = tf.data.TFRecordDataset(split.files).shuffle(IMAGES, seed=1).repeat()
        images = records.map(lambda record: function(*resnet.parse(record)), num_parallel_calls=calls)
        return images.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    def tutorial(encoded: Any, label: Any) -> Any:
        image = tf.image.convert_image_dtype(tf.io.decode_jpeg(encoded, channels=3), tf.float32)
        image = tf.image.resize(image, [256, 256])
        image = tf.image.random_flip_left_right(tf.image.random_crop(image, [224, 224, 3]))
        return (image - MEAN) / DEVIATION, label

    def unfused(encoded: Any, label: Any) -> Any:
        seeds = tf.random.split(tf.random.uniform([2], 0, 2**31 - 1, tf.int32), 2)
        image = tf.io.decode_jpeg(encoded, channels=3)
        top, left, height, width = tf.unstack(resnet.random_window(tf.shape(image), seeds[0]))
        image = tf.image.convert_image_dtype(image[top : top + height, left : left + width], tf.float32)
        image = tf.image.stateless_random_flip_left_right(tf.image.resize(image, [224, 224]), seeds[1])
        return (image - MEAN) / DEVIATION, label

    parallel = tf.data.AUTOTUNE
    builders = (
        lambda: mapped(tutorial, None),
        lambda: mapped(tutorial, parallel),
        lambda: mapped(unfused, parallel),
        lambda: ours(normalised),
        lambda: ours(resnet.augment),
    )
    return dict(zip(STAGES, builders, strict=True))


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def report(timings: dict[str, list[Times]], images: int, size: int) -> None:
    """Print JSON and a table: images per second, CPU time per image, ratios turn by turn."""
    rows, lines, ratios = [], [], []
    for name, turns in timings.items():
        rate = statistics.median(images / wall for wall, _ in turns)
        cpu = 1000 * statistics.median(used / images for _, used in turns)
        rows.append({"name": name, "what": STAGES[name], "images_per_second": rate, "cpu_ms_per_image": cpu})
        lines.append(f"  {name:<40} {rate:7.0f} images/s {cpu:6.2f} ms CPU an image   {STAGES[name]}")
    for fast, slow, target in RATIOS:
        for column, unit in enumerate(("wall", "CPU")):
            pairs = zip(timings[slow], timings[fast], strict=True)
            quotients = sorted(slower[column] / faster[column] for slower, faster in pairs)
            median = statistics.median(quotients)
            bound = target if unit == "wall" else ""
            entry = {"median": median, "lowest": quotients[0], "highest": quotients[-1], "wanted": bound}
            ratios.append({"name": f"{fast} / {slow}", "of": unit, **entry})
            spread = f"({quotients[0]:.2f} to {quotients[-1]:.2f})"
            suffix = f"   target: {bound}" if bound else ""
            lines.append(f"  {f'{unit}: {fast} against {slow}':<76} {median:5.2f} x {spread}{suffix}")
    notes = [
        f"photographs of 500x375, {size / 1000:.0f} kB on average, from TFRecord shards in the page cache;"
        f" {images} a turn, {len(timings[OURS])} turns, {os.cpu_count()} cores"
    ]
    show("input pipeline", {"rows": rows, "ratios": ratios}, lines, notes)


if __name__ == "__main__":
    main()
