"""What reads datasets in the bucket takes the same memory for ten times the records."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.running_simulator import CommandResult

TENTH, TEXT = 4_800, 4_000
"""Records of the small datasets, and bytes of each: 20 MB; the large ones have 173 MB more."""
MORE = 9 * TENTH * TEXT // 2
"""Bytes that a command may take more for a large one, whose shards fill all buffers: half of its records."""
PEAK = Path("/proc/self/status")


def write(file: Path, records: int, *, shift: int) -> None:
    """Write a table; of two with another shift some rows differ."""
    rows = (f"{number:0{TEXT}}x,{number % 3}\n" for number in range(shift, records + shift))
    file.write_text("text,label\n" + "".join(rows))


def peak(*command: str) -> int:
    """Return the most memory that a command has at a time."""
    program = [sys.executable, "-m", "tests.flows.datasets.analysis.test_memory", *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return int(result.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(not PEAK.exists(), reason="only Linux reports the peak of a process")
@pytest.mark.usefixtures("simulator")
def test_ten_times_the_records_take_no_more_memory(
    tpuctl: Callable[..., CommandResult], tmp_path: Path
) -> None:
    for name, times in (("small", 1), ("large", 10)):
        for version, shift in (("1.0.0", 0), ("2.0.0", 10)):
            write(tmp_path / "rows.csv", times * TENTH, shift=shift)
            uploaded = tpuctl("data", "upload", name, str(tmp_path / "rows.csv"), "--version", version)
            assert uploaded.code == 0, uploaded.err
    splits = ("--splits", "train=0.5,test=0.5", "--group-duplicates")
    half = {"small": str(TENTH // 2), "large": str(10 * TENTH // 2)}
    commands: dict[str, Callable[[str], tuple[str, ...]]] = {
        "stats": lambda name: ("data", "stats", f"{name}/1.0.0"),
        "diff": lambda name: ("data", "diff", f"{name}/1.0.0", f"{name}/2.0.0"),
        "split": lambda name: ("data", "split", f"{name}/1.0.0", *splits),
        "sample": lambda name: ("data", "sample", f"{name}/1.0.0", "-n", half[name], "--to", f"look-{name}"),
        "new": lambda name: ("data", "sample", f"{name}/1.0.0", "-n", half[name], "--as", f"half_{name}"),
    }
    grown = {title: (peak(*command("small")), peak(*command("large"))) for title, command in commands.items()}
    assert {title: large - small for title, (small, large) in grown.items() if large > small + MORE} == {}


if __name__ == "__main__":
    from tpuctl.cli.main import run

    code = run(sys.argv[1:])
    (line,) = (line for line in PEAK.read_text().splitlines() if line.startswith("VmHWM"))
    print(int(line.split()[1]) << 10)
    sys.exit(code)
