"""Many small files: listing, plan and upload, each by a process of its own, for two numbers of files.

python -m benchmarks.datasets.small_files [--files N]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.datasets.processes import run
from benchmarks.measure import show
from benchmarks.own_simulator import own_simulator

IN_A_FOLDER = 10_000
TPUCTL = str(Path(sys.executable).with_name("tpuctl"))
LIST = """
import sys
from pathlib import Path
from tpuctl.data.files.listing import list_class_folders
from tpuctl.data.trees.local import LocalTree
folders = list_class_folders(LocalTree(Path(sys.argv[1])))
assert len(folders.files) == int(sys.argv[2])
"""


def main() -> None:
    """Measure a tenth of the files, then all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    options = parser.parse_args()
    with own_simulator() as (folder, _):
        environment = {**os.environ, "HOME": str(folder)}
        rows = [row for count in (options.files // 10, options.files) for row in measured(count, environment)]
    lines = [
        f"  {row['files']:>9} files, {row['step']:<7} {row['wall']:7.2f} s wall, {row['cpu']:7.2f} s CPU, "
        f"{row['us_per_file']:6.1f} us CPU a file, {row['memory_mb']:6.1f} MB"
        for row in rows
    ]
    show(
        "small files",
        {"figures": rows},
        lines,
        ["texts of some bytes, in class folders; Python's start and imports included, the simulator not"],
    )


def measured(count: int, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Make so many files, and return the figures of each step over all of them."""
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name:
        for number in range(count):
            file = Path(name) / f"class_{number // IN_A_FOLDER:03}" / f"{number:07}.txt"
            if not number % IN_A_FOLDER:
                file.parent.mkdir()
            file.write_text(f"text {number}")
        steps = {
            "listing": [sys.executable, "-c", LIST, name, str(count)],
            "plan": [TPUCTL, "data", "plan", f"small{count}", name],
            "upload": [TPUCTL, "data", "upload", f"small{count}", name],
        }
        return [_row(count, step, command, environment) for step, command in steps.items()]


def _row(count: int, step: str, command: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    usage = run(command, environment)
    return {
        "files": count,
        "step": step,
        "wall": usage.wall,
        "cpu": usage.cpu,
        "us_per_file": usage.cpu / count * 1e6,
        "memory_mb": usage.memory,
    }


if __name__ == "__main__":
    main()
