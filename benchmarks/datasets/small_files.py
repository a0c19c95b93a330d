"""Many small files: CPU seconds and peak memory of listing, plan and conversion, for two numbers of files.

python -m benchmarks.datasets.small_files [--files N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import show

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("convert.py")
IN_A_FOLDER = 10_000
CHILD = """
import json, resource, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def main() -> None:
    """Measure a tenth of the files, then all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    options = parser.parse_args()
    rows = [measured(count) for count in (options.files // 10, options.files)]
    lines = [
        f"  {row['files']:>9} files: plan {row['plan_us']:6.1f} us CPU a file, all {row['all_us']:6.1f} us, "
        f"{row['memory_mb']:6.1f} MB"
        for row in rows
    ]
    show(
        "small files",
        {"figures": rows},
        lines,
        ["texts of some bytes, in class folders; shards are not sent"],
    )


def measured(count: int) -> dict[str, float]:
    """Make so many files, convert them in a process of its own, and return the figures of each file."""
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name:
        for number in range(count):
            file = Path(name) / f"class_{number // IN_A_FOLDER:03}" / f"{number:07}.txt"
            if not number % IN_A_FOLDER:
                file.parent.mkdir()
            file.write_text(f"text {number}")
        command = [sys.executable, "-c", CHILD, str(SCRIPT), name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    figures, memory = (json.loads(line) for line in output.splitlines())
    return {
        "files": count,
        "plan_us": figures["plan_cpu"] / count * 1e6,
        "all_us": figures["cpu"] / count * 1e6,
        "memory_mb": memory,
    }


if __name__ == "__main__":
    main()
