"""`tpuctl cp` beside scp, sftp and rsync: a large file and many small ones, to a simulated host and back."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import Ratio, ratio, report, rows, side_by_side
from benchmarks.own_simulator import own_simulator
from tpuctl.cloud.endpoints import connect
from tpuctl.config import load

ZONE = "europe-west4-a"
OURS = "tpuctl cp"
ONE = "1 file"
"""What is copied to see how long each program takes to start and log in."""
TPUCTL = [sys.executable, "-m", "tpuctl"]
BLOCK = 1_000_000
SMALL_BYTES = 1_000
"""Bytes of each small file."""
PER_FOLDER = 100
Commands = dict[str, list[str]]
Timings = list[tuple[float, float]]
"""Seconds of wall and CPU time of each turn."""


def main(arguments: list[str] | None = None) -> None:
    """Measure and report."""
    options = _parser().parse_args([] if arguments is None else arguments)
    with own_simulator() as (folder, _):
        _measure(folder, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.copy", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="Size of the large file.")
    parser.add_argument("--files", type=int, default=10_000, help="Number of small files, of 1 kB each.")
    parser.add_argument("--turns", type=int, default=3, help="Copies by each program.")
    return parser


def _measure(folder: Path, options: argparse.Namespace) -> None:
    environment = dict(os.environ)
    up = [*TPUCTL, "up", "v3-8", "--name", "n1", "--zone", ZONE, "--yes"]
    side_by_side({"up": up}, runs=1, environment=environment, warm_up=False)
    sources = {
        ONE: _small(folder / "one", 1),
        f"{options.megabytes} MB": _large(folder / "large", options.megabytes),
        f"{options.files} files": _small(folder / "small", options.files),
    }
    peers = Peers(folder)
    timings: dict[str, list[tuple[float, float]]] = {}
    for turn in range(options.turns):
        for subject, source in sources.items():
            for direction in ("up", "down"):
                place = folder / f"{direction}-{source.name}-{turn}"
                place.mkdir()
                commands = peers.commands(source, place, direction)
                for program, command in commands.items():
                    measured = side_by_side(
                        {program: command}, runs=1, environment=environment, warm_up=False
                    )
                    timings.setdefault(f"{program}, {subject} {direction}", []).extend(measured[program])
                    _check(source, place / program.split()[-1])
                shutil.rmtree(place)
    report("copy", rows(timings), _ratios(timings), _notes(peers))


class Peers:
    """The command lines that copy a folder to the host and from it; its disk is this machine's."""

    def __init__(self, folder: Path) -> None:
        cloud = connect(load({}))
        try:
            node = cloud.provider.get_node(cloud.provider.node_id(ZONE, "n1"))
            self._host = f"{cloud.ssh.user}@{node.addresses[0]}"
            config = folder / "sim/hosts.ssh_config"
            self._login = ["-F", str(config), "-i", str(cloud.ssh.key)]
        finally:
            cloud.close()
        self._login += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        self.has_rsync = shutil.which("rsync") is not None

    def commands(self, source: Path, place: Path, direction: str) -> Commands:
        """Return the command of each program, which copies `source` to a folder of its own in `place`."""
        there, batch = f"{self._host}:", place / "batch"
        verb = "put" if direction == "up" else "get"
        batch.write_text(f"{verb} -r {source} {place}/sftp\n")
        pairs = {
            name: (str(source), f"{host}{place}/{name}") if direction == "up"
            else (f"{host}{source}", f"{place}/{name}")
            for name, host in (("cp", "n1@0:"), ("scp", there), ("rsync", there))
        }  # fmt: skip
        commands = {
            OURS: [*TPUCTL, "cp", *pairs["cp"]],
            "scp": ["scp", "-q", "-r", *self._login, *pairs["scp"]],
            "sftp": ["sftp", "-q", *self._login, "-b", str(batch), self._host],
        }
        if direction == "up":
            (place / "sftp").mkdir()  # put -r wants it
        if self.has_rsync:
            shell = " ".join(["ssh", *self._login])
            above, below = pairs["rsync"]
            commands["rsync"] = ["rsync", "-a", "-e", shell, f"{above}/", f"{below}/"]
        return commands


def _large(folder: Path, megabytes: int) -> Path:
    folder.mkdir()
    with (folder / "file").open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(BLOCK))
    return folder


def _small(folder: Path, count: int) -> Path:
    for number in range(count):
        path = folder / str(number // PER_FOLDER) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL_BYTES))
    return folder


def _check(source: Path, copy: Path) -> None:
    """Compare the sizes of what arrived, and delete it."""
    top = copy / source.name if (copy / source.name).is_dir() else copy
    if _sizes(top) != _sizes(source):
        raise SystemExit(f"{copy} is not a copy of {source}")
    shutil.rmtree(copy)


def _sizes(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): path.stat().st_size for path in top.rglob("*") if path.is_file()}


def _ratios(timings: Mapping[str, list[tuple[float, float]]]) -> list[Ratio]:
    """Compare our wall time with that of each other program, turn by turn; a large file also alone."""
    ratios = []
    for name, times in timings.items():
        program, _, subject = name.partition(", ")
        if program == OURS:
            continue
        ours = timings[f"{OURS}, {subject}"]
        ratios.append(ratio(f"{OURS} / {name}", ours, times, "none"))
        if " MB " in subject:
            direction = subject.rpartition(" ")[2]
            mine, theirs = (timings[f"{name}, {ONE} {direction}"] for name in (OURS, program))
            bound = "1.5 at most" if program == "scp" else "none"
            alone = _without(ours, mine), _without(times, theirs)
            ratios.append(ratio(f"without start and login / {name}", *alone, bound))
    return ratios


def _without(times: Timings, starts: Timings) -> Timings:
    """Return times without those of the start, turn by turn."""
    return [(wall - start[0], cpu - start[1]) for (wall, cpu), start in zip(times, starts, strict=True)]


def _notes(peers: Peers) -> list[str]:
    notes = ["CPU: of the client and the processes that it starts; the simulated host has the same disk"]
    if not peers.has_rsync:
        notes.append("rsync is not installed: no comparison")
    return notes


if __name__ == "__main__":
    main(sys.argv[1:])
