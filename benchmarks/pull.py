"""`tpuctl pull` beside gcloud storage, gsutil, transfer_manager: one large file, eight, many small ones."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.measure import Ratio, ratio, report, rows, side_by_side
from benchmarks.own_simulator import own_simulator
from tpuctl import runs
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.flows.runs.stored_run import StoredRun

OURS = "tpuctl pull"
TPUCTL = [sys.executable, "-m", "tpuctl"]
BOUND = "0.7"
MIB = 1 << 20
SMALL_BYTES = 2_000
"""Bytes of each small file."""
CREATED = "2026-01-01T12:00:00Z"
TRANSFER_MANAGER = """
import sys
from google.cloud import storage
from google.cloud.storage import transfer_manager
endpoint, bucket, prefix, folder = sys.argv[1:]
from google.auth.credentials import AnonymousCredentials
client = storage.Client("p", AnonymousCredentials(), client_options={"api_endpoint": endpoint})
blobs = list(client.list_blobs(bucket, prefix=prefix))
if len(blobs) < 100:
    for blob in blobs:
        blob.name and transfer_manager.download_chunks_concurrently(
            blob, f"{folder}/{blob.name.rpartition('/')[2]}", worker_type="thread", max_workers=8
        )
else:
    names = [blob.name[len(prefix):] for blob in blobs]
    failed = [result for result in transfer_manager.download_many_to_path(
        client.bucket(bucket), names, destination_directory=folder, blob_name_prefix=prefix,
        worker_type="thread", max_workers=8,
    ) if result]
    assert not failed, failed[:3]
"""
"""Google's own parallel downloads, with threads: processes take longer to start than most of these runs."""


def main(arguments: list[str] | None = None) -> None:
    """Measure and report."""
    options = _parser().parse_args([] if arguments is None else arguments)
    with own_simulator(options.folder) as (folder, _):
        _measure(folder, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pull", description=__doc__)
    parser.add_argument("--large", type=int, default=2048, help="MiB of the one large file.")
    parser.add_argument("--eight", type=int, default=128, help="MiB of each of eight files.")
    parser.add_argument("--files", type=int, default=5000, help=f"Number of files of {SMALL_BYTES} bytes.")
    parser.add_argument("--turns", type=int, default=3, help="Downloads by each program.")
    parser.add_argument("--folder", default=None, help="Where to put files; by default the system's.")
    return parser


def _measure(folder: Path, options: argparse.Namespace) -> None:
    cloud = connect(load({}))
    subjects = {
        f"1 x {options.large} MiB": (1, options.large * MIB),
        f"8 x {options.eight} MiB": (8, options.eight * MIB),
        f"{options.files} small files": (options.files, SMALL_BYTES),
    }
    timings: dict[str, list[tuple[float, float]]] = {}
    try:
        for number, (count, size) in enumerate(subjects.values()):
            _write(cloud.bucket, f"r{number}", count, size)
        peers = Peers(cloud.bucket)
        for _ in range(options.turns):
            for number, (subject, (count, size)) in enumerate(subjects.items()):
                for program, command in peers.commands(f"r{number}", folder).items():
                    place = folder / "place"
                    place.mkdir()
                    environment = dict(os.environ) if program == OURS else peers.environment
                    measured = side_by_side(
                        {program: command}, runs=1, environment=environment, warm_up=False
                    )
                    timings.setdefault(f"{program}, {subject}", []).extend(measured[program])
                    _check(place, count, size)
                    shutil.rmtree(place)
    finally:
        cloud.close()
    report("pull", rows(timings), _ratios(timings), peers.notes)


def _write(bucket: Bucket, name: str, count: int, size: int) -> None:
    """Write a run with so many files of so many bytes, all different."""
    run = StoredRun(bucket, name)
    run.create(runs.Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-8", (), {}))
    tpu = runs.Tpu("n1", "7", "p", "z", "v3-8", "base", 1, spot=False)
    run.create_attempt(runs.Attempt(1, CREATED, tpu, (0,)))
    run.end(runs.Verdict(name, runs.SUCCEEDED, 1, CREATED, "every script ended"))
    for number in range(count):
        pieces = (os.urandom(min(MIB, size - start)) for start in range(0, size, MIB))
        bucket.upload(f"{run.paths.outputs}{number}", pieces, "application/octet-stream", part=64 * MIB)


class Peers:
    """The command lines that download a run's outputs."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        shown = subprocess.run([*TPUCTL, "sim", "env", "--json"], capture_output=True, check=True).stdout
        self.environment = {**os.environ, **msgspec.json.decode(shown)["environment"]}
        self._installed = {name for name in ("gcloud", "gsutil") if shutil.which(name)}
        self.notes = ["CPU: of the client and the processes that it starts"]
        self.notes += [
            f"{name} is not installed: no comparison"
            for name in ("gcloud", "gsutil")
            if name not in self._installed
        ]

    def commands(self, run: str, folder: Path) -> Mapping[str, list[str]]:
        """Return the command of each program, which fills the folder `place`."""
        prefix, place = f"runs/{run}/outputs/", str(folder / "place")
        source = f"gs://{self._bucket.name}/{prefix}*"
        endpoint = self._bucket._client.api_endpoint
        commands = {
            OURS: [*TPUCTL, "pull", run, "--to", place],
            "transfer_manager": [
                sys.executable, "-c", TRANSFER_MANAGER, endpoint, self._bucket.name, prefix, place,
            ],
            "gcloud storage": ["gcloud", "storage", "cp", "-r", source, place],
            "gsutil": ["gsutil", "-m", "cp", "-r", source, place],
        }  # fmt: skip
        return {name: command for name, command in commands.items() if self._has(command[0])}

    def _has(self, program: str) -> bool:
        return program not in ("gcloud", "gsutil") or program in self._installed


def _check(place: Path, count: int, size: int) -> None:
    """Compare number and sizes of what arrived."""
    top = place / "outputs" if (place / "outputs").is_dir() else place
    sizes = [path.stat().st_size for path in top.iterdir() if path.is_file()]
    if sizes != [size] * count:
        raise SystemExit(f"{top} has {len(sizes)} files of {sum(sizes)} bytes, not {count} of {size}")


def _ratios(timings: Mapping[str, list[tuple[float, float]]]) -> list[Ratio]:
    """Compare our wall time with that of each other program, turn by turn."""
    ratios = []
    for name, times in timings.items():
        program, _, subject = name.partition(", ")
        if program != OURS:
            ratios.append(ratio(f"{OURS} / {name}", timings[f"{OURS}, {subject}"], times, BOUND))
    return ratios


if __name__ == "__main__":
    main(sys.argv[1:])
