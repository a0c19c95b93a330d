"""The main job, end to end on the simulator: each command as typed, what it prints, a test of the model."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STORY = (
    ("A real dataset: the UCI handwritten digits, as pictures in class folders.",
     "python demo/write_digits.py {place}/digits"),
    ("A TPU, ready for SSH.", "tpuctl up v3-8 --yes"),
    ("The dataset as TFRecord shards in the bucket.", "tpuctl data upload digits {place}/digits"),
    ("The training script, shipped and started, detached.",
     "tpuctl submit jobs/digits.py"),
    ("Its log, until it ends.", "tpuctl logs -f"),
    ("Checkpoints, logs and records, verified.", "tpuctl pull --to {place}/result"),
    ("Nothing that bills stays.", "tpuctl down --yes"),
    ("The trained model on the fifth that was held out, by a program of its own.",
     "python demo/evaluate_digits.py {place}/result/checkpoints {place}/digits/test --at-least 0.95"),
)  # fmt: skip
"""What each step is for, and the command as a user types it."""


def main() -> int:
    """Tell the story; returns the exit code of the step that failed, or 0."""
    os.chdir(ROOT)
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ".demo")
    for folder in ("digits", "result", "state"):
        shutil.rmtree(place / folder, ignore_errors=True)
    environment = turned_to_simulator(place)
    began = time.monotonic()
    try:
        steps = (step(why, command.format(place=place), environment) for why, command in STORY)
        code = next((one for one in steps if one), 0)
    finally:
        stopped = step("And nothing is left running.", "tpuctl sim stop", environment)
    print(f"\n{time.monotonic() - began:.0f} s in all; the results are in {place}/result", flush=True)
    return code or stopped


def step(why: str, command: str, environment: dict[str, str]) -> int:
    """Show a command and run it."""
    print(f"\n# {why}\n$ {command}", flush=True)
    program, *arguments = shlex.split(command)
    return subprocess.run([str(BIN / program), *arguments], env=environment, check=False).returncode


def turned_to_simulator(place: Path) -> dict[str, str]:
    """Return the user's environment with the simulator as target and a state folder of the demo's own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TPUCTL_")}
    return {**own, "TPUCTL_TARGET": "sim", "TPUCTL_STATE": str(place.resolve() / "state")}


if __name__ == "__main__":
    sys.exit(main())
