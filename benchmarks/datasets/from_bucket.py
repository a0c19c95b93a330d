"""A source in a bucket against its copy on the disk: `python -m benchmarks.datasets.from_bucket`."""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from benchmarks.datasets import sources
from benchmarks.datasets.__main__ import IMAGES, TPUCTL, TURNS, Place, environment
from benchmarks.datasets.figures import Figure, Turn, Value, cpu, figure, over, report, wall
from benchmarks.datasets.processes import run
from tpuctl.cloud import simulator as simulator_process

LOCAL, BUCKET = "from the disk", "from gs://"
_WIDTH = 8


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name:
        folder = Path(name)
        served = simulator_process.ensure(folder / "state" / "sim")
        try:
            place = Place(served, folder, environment(served, folder))
            report(measure(place, sources.images(folder / "images", options.images), options.turns), [])
        finally:
            simulator_process.stop(folder / "state" / "sim")


def measure(place: Place, tree: Path, turns: int) -> list[Figure]:
    """Upload the same pictures from the disk and from a bucket, alternating; the first is not counted."""
    ways = {LOCAL: str(tree), BUCKET: copied(place, tree)}
    names = {LOCAL: "local", BUCKET: "remote"}
    turns_measured: list[Turn] = []
    for number in range(turns + 1):
        version = f"--version=1.0.{number}"
        turn = {
            way: run([*TPUCTL, "data", "upload", names[way], source, version], place.environment)
            for way, source in ways.items()
        }
        turns_measured.append(turn)
    rows: list[tuple[str, str, Value, str]] = [
        (f"{BUCKET} / {LOCAL}: wall", "x", over(wall(BUCKET), wall(LOCAL)), "1.3 at most"),
        (f"{BUCKET} / {LOCAL}: CPU", "x", over(cpu(BUCKET), cpu(LOCAL)), ""),
        *((f"{way}: wall", "s", wall(way), "") for way in ways),
        *((f"{way}: CPU", "s", cpu(way), "") for way in ways),
        (f"{BUCKET}: peak memory", "MB", lambda turn: turn[BUCKET].memory, "400 at most"),
    ]
    return [
        figure("images", name, unit, [value(turn) for turn in turns_measured[1:]], goal)
        for name, unit, value, goal in rows
    ]


def copied(place: Place, tree: Path) -> str:
    """Copy the pictures into the simulated bucket; return their URI."""
    bucket = place.served.bucket
    url = f"{place.served.storage}/upload/storage/v1/b/{bucket}/o"

    def put(path: Path) -> None:
        query = {"uploadType": "media", "name": f"raw/{path.relative_to(tree).as_posix()}"}
        requests.post(url, params=query, data=path.read_bytes(), timeout=60).raise_for_status()

    with ThreadPoolExecutor(_WIDTH) as pool:
        list(pool.map(put, sorted(tree.rglob("*.jpg"))))
    return f"gs://{bucket}/raw"


if __name__ == "__main__":
    main()
