"""The input pipeline of jobs/resnet.py against one as tutorials write it, on the same TFRecord shards."""

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
PICTURES, BATCH = 256, 64
BATCHES = 12
"""Of a measurement: 768 pictures, a few seconds."""
TURNS = 7
OURS, NAIVE = "resnet.py", "as tutorials write it"
PARALLEL, UNFUSED = f"{NAIVE}, parallel", "resnet.py's recipe, decoded whole"
NORMALISED = "resnet.py, and normalised on the host"
WHAT = {
    NAIVE: "decode all, float32, resize to 256x256, crop 224x224, flip, normalise; one after the other",
    PARALLEL: "the same by map(num_parallel_calls=AUTOTUNE)",
    UNFUSED: "decode all, float32, a part of any size, resize to 224x224, flip, normalise; AUTOTUNE",
    NORMALISED: "the next one's, and what is done on the TPU, normalise, here",
    OURS: "as it trains: decode a part of any size only, uint8, resize to 224x224, flip; AUTOTUNE",
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
    """Measure in a process of its own, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("pictures", PICTURES), ("batches", BATCHES), ("turns", TURNS)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    asked, _ = parser.parse_known_args()
    if asked.serve:
        print(json.dumps(measure(asked.serve, asked.batches, asked.turns)))
        return
    from benchmarks.input_pipeline.pictures import shards  # noqa: PLC0415  scikit-learn takes seconds

    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name:
        folder, size = shards(Path(name), asked.pictures)
        command = [sys.executable, "-m", "benchmarks.input_pipeline", f"--serve={folder}"]
        command += [f"--batches={asked.batches}", f"--turns={asked.turns}"]
        variables = {one: value for one, value in os.environ.items() if not one.startswith("TPU")}
        variables["TF_CPP_MIN_LOG_LEVEL"] = "3"
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    taken = json.loads(done.stdout.splitlines()[-1])
    report(taken, asked.batches * BATCH, size // asked.pictures)


def measure(folder: Path, batches: int, turns: int) -> dict[str, list[Times]]:
    """Read so many batches in every way, turn about, after a turn that does not count."""
    made = pipelines(folder)
    taken: dict[str, list[Times]] = {name: [] for name in made}
    for turn in range(turns + 1):
        for name, build in made.items():
            one = read(build, batches)
            if turn:
                taken[name].append(one)
    return taken


def read(build: Callable[[], Any], batches: int) -> Times:
    """Read so many batches after the first; as much is under way when that is there as at the end."""
    reading = iter(build())
    next(reading)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):
        next(reading)
    return time.perf_counter() - wall, time.process_time() - cpu


def pipelines(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return what makes each pipeline, in the order of `WHAT`; all shuffle the same files alike."""
    sys.path.insert(0, str(JOBS))
    import resnet  # noqa: PLC0415  imports TensorFlow: only in the process that measures
    import tensorflow as tf  # noqa: PLC0415
    import training  # noqa: PLC0415

    split = training.find_split(str(folder), "train")
    alone = tf.distribute.InputContext()

    def ours(augment: Any) -> Any:
        return training.read(
            split, alone, BATCH, resnet.parse, seed=1, augment=augment, cache=False, shuffle=PICTURES
        )

    def normalised(encoded: Any, label: Any, seed: Any) -> Any:
        picture, label = resnet.augment(encoded, label, seed)
        return (tf.cast(picture, tf.float32) - resnet.MEAN) / resnet.DEVIATION, label

    def mapped(function: Any, calls: int | None) -> Any:
        records = tf.data.TFRecordDataset(split.files).shuffle(PICTURES, seed=1).repeat()
        pictures = records.map(lambda record: function(*resnet.parse(record)), num_parallel_calls=calls)
        return pictures.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    def tutorial(encoded: Any, label: Any) -> Any:
        picture = tf.image.convert_image_dtype(tf.io.decode_jpeg(encoded, channels=3), tf.float32)
        picture = tf.image.resize(picture, [256, 256])
        picture = tf.image.random_flip_left_right(tf.image.random_crop(picture, [224, 224, 3]))
        return (picture - MEAN) / DEVIATION, label

    def unfused(encoded: Any, label: Any) -> Any:
        seeds = tf.random.split(tf.random.uniform([2], 0, 2**31 - 1, tf.int32), 2)
        picture = tf.io.decode_jpeg(encoded, channels=3)
        top, left, height, width = tf.unstack(resnet.random_window(tf.shape(picture), seeds[0]))
        picture = tf.image.convert_image_dtype(picture[top : top + height, left : left + width], tf.float32)
        picture = tf.image.stateless_random_flip_left_right(tf.image.resize(picture, [224, 224]), seeds[1])
        return (picture - MEAN) / DEVIATION, label

    every = tf.data.AUTOTUNE
    made = (
        lambda: mapped(tutorial, None),
        lambda: mapped(tutorial, every),
        lambda: mapped(unfused, every),
        lambda: ours(normalised),
        lambda: ours(resnet.augment),
    )
    return dict(zip(WHAT, made, strict=True))


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def report(taken: dict[str, list[Times]], pictures: int, size: int) -> None:
    """Print JSON and a table: pictures a second, CPU time of a picture, ratios turn by turn."""
    rows, lines, ratios = [], [], []
    for name, turns in taken.items():
        rate = statistics.median(pictures / wall for wall, _ in turns)
        cpu = 1000 * statistics.median(used / pictures for _, used in turns)
        rows.append({"name": name, "what": WHAT[name], "images_per_second": rate, "cpu_ms_per_image": cpu})
        lines.append(f"  {name:<40} {rate:7.0f} images/s {cpu:6.2f} ms CPU an image   {WHAT[name]}")
    for one, other, wanted in RATIOS:
        for column, unit in enumerate(("wall", "CPU")):
            found = sorted(
                slow[column] / fast[column] for fast, slow in zip(taken[one], taken[other], strict=True)
            )
            median = statistics.median(found)
            mark = wanted if unit == "wall" else ""
            entry = {"median": median, "lowest": found[0], "highest": found[-1], "wanted": mark}
            ratios.append({"name": f"{one} / {other}", "of": unit, **entry})
            spread = f"({found[0]:.2f} to {found[-1]:.2f})"
            wish = f"   wanted: {mark}" if mark else ""
            lines.append(f"  {f'{unit}: {one} against {other}':<76} {median:5.2f} x {spread}{wish}")
    notes = [
        f"photographs of 500x375, {size / 1000:.0f} kB on average, from TFRecord shards in the page cache;"
        f" {pictures} a turn, {len(taken[OURS])} turns, {os.cpu_count()} cores"
    ]
    show("input pipeline", {"rows": rows, "ratios": ratios}, lines, notes)


if __name__ == "__main__":
    main()
