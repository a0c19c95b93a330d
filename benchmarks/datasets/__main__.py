"""`tpuctl data upload` against the usual way, into the same simulated bucket: images, and small rows."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.datasets import sources
from benchmarks.datasets.figures import Figure, Turn, figure, figures, report
from benchmarks.datasets.processes import run
from tpuctl.cloud import simulator as simulator_process

IMAGES, ROWS = 4_000, 200_000
TURNS = 3
LARGER = 4
"""How many times the images are uploaded, to see that memory does not grow."""
SHARD = 100_000_000
PYTHON = [sys.executable, "-m"]
TPUCTL = [str(Path(sys.executable).with_name("tpuctl"))]


@dataclass(frozen=True)
class Place:
    """The simulator, a folder on the disk, and the environment that points clients to the bucket."""

    served: simulator_process.PublishedEndpoints
    folder: Path
    environment: dict[str, str]


@dataclass(frozen=True)
class Source:
    """Data to convert: its kind, its path, its approximate size in bytes."""

    kind: str
    path: Path
    size: int
    turns: list[Turn] = field(default_factory=list)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("images", IMAGES), ("rows", ROWS), ("turns", TURNS)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name:
        folder = Path(name)
        served = simulator_process.ensure(folder / "state" / "sim")
        try:
            place = Place(served, folder, environment(served, folder))
            report(*measure(place, options.images, options.rows, options.turns))
        finally:
            simulator_process.stop(folder / "state" / "sim")


def measure(place: Place, images: int, rows: int, turns: int) -> tuple[list[Figure], list[str]]:
    """Convert both sources in every way, alternating, after small ones that are not measured."""
    tree = sources.images(place.folder / "images", images)
    table = sources.rows(place.folder / "rows.csv", rows)
    turn(place, Source("rows", sources.rows(place.folder / "little.csv", 100), 1), 0)
    size = sum(path.stat().st_size for path in tree.rglob("*.jpg"))
    measured = []
    for source in (Source("images", tree, size), Source("rows", table, table.stat().st_size)):
        for number in range(1, turns + 1):
            source.turns.append(turn(place, source, number))
            _report_turn(f"{source.kind}, turn {number}", source.turns[-1])
        shards = sum(path.stat().st_size for path in (place.folder / "shards").iterdir())
        measured += figures(source.kind, source.turns, shards)
    measured += memory(place, sources.linked(place.folder / "larger", tree, LARGER))
    built, notes = build(place, tree)
    return [*measured, *built], notes


def turn(place: Place, source: Source, number: int) -> Turn:
    """Convert in every way, once each; the shards of the usual script are the prebuilt ones."""
    shards = place.folder / "shards"
    shutil.rmtree(shards, ignore_errors=True)
    served, count = place.served, max(round(source.size / SHARD), 1)
    usual = [source.kind, str(source.path), str(shards), str(count)]
    upload = ["data", "upload", source.kind, str(source.path)]
    sent = [str(shards), served.storage, served.project, served.bucket, "sent/"]
    ways = {
        "tpuctl": [*TPUCTL, *upload, f"--version=1.0.{number}"],
        "usual script": [*PYTHON, "benchmarks.datasets.usual", *usual],
        "gcloud storage cp": ["gcloud", "storage", "cp", f"{shards}/*", f"gs://{served.bucket}/copied/"],
        "tpuctl, warm": [*PYTHON, "benchmarks.datasets.warm", "tpuctl", *upload, f"--version=2.0.{number}"],
        "transfer_manager": [*PYTHON, "benchmarks.datasets.warm", "send", *sent],
    }
    if not shutil.which("gcloud"):
        del ways["gcloud storage cp"]
    return {name: run(command, place.environment) for name, command in ways.items()}


def memory(place: Place, larger: Path) -> list[Figure]:
    """Upload a larger source, and measure the memory of the command and its children."""
    usage = run([*TPUCTL, "data", "upload", "larger", str(larger)], place.environment, sampled=True)
    name = f"tpuctl, {LARGER} times as many:"
    return [
        figure("images", f"{name} wall", "s", [usage.wall]),
        figure("images", f"{name} peak memory", "MB", [usage.memory], "400 at most"),
    ]


def build(place: Place, tree: Path) -> tuple[list[Figure], list[str]]:
    """Have TFDS write the same images to the disk; note what was not compared."""
    notes = [] if shutil.which("gcloud") else ["gcloud is not installed here: not compared"]
    if not importlib.util.find_spec("tensorflow_datasets"):
        return [], [*notes, "tensorflow-datasets is not installed here: not compared"]
    command = [*PYTHON, "benchmarks.datasets.tfds", str(tree), str(place.folder / "tfds")]
    usage = run(command, place.environment)
    notes.append("tfds build: what the command does, download_and_prepare; its shards stay on the disk")
    return [
        figure("images", "tfds build, without a copy to the bucket: wall", "s", [usage.wall]),
        figure("images", "tfds build: imports left out", "s", [usage.inside]),
    ], notes


def _report_turn(name: str, turn: Turn) -> None:
    times = ", ".join(f"{way} {usage.wall:.1f} s" for way, usage in turn.items())
    print(f"  {name}: {times}", file=sys.stderr, flush=True)


def environment(served: simulator_process.PublishedEndpoints, folder: Path) -> dict[str, str]:
    """The environment that points `tpuctl` and stock gcloud to the simulator, with folders of their own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TPUCTL_", "CLOUDSDK_"))}
    return {
        **own,
        "TPUCTL_STATE": str(folder / "state"),
        "TPUCTL_TARGET": "sim",
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{served.storage}/storage/v1/",
        "CLOUDSDK_CORE_PROJECT": served.project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
        "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "true",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


if __name__ == "__main__":
    main()
