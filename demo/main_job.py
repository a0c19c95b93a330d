"""The README's example, end to end on the simulator: run each command and show its output."""

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

STEPS = (
    ("A real dataset: the UCI handwritten digits, as images in class folders.",
     "python demo/write_digits.py {results}/digits"),
    ("A TPU, ready for SSH.", "tpuctl up v3-8 --framework tensorflow --yes"),
    ("The dataset as TFRecord shards in the bucket.", "tpuctl data upload digits {results}/digits"),
    ("The training script, shipped to the TPU and started in the background.",
     "tpuctl submit jobs/digits.py"),
    ("Its log, until it ends.", "tpuctl logs -f"),
    ("Checkpoints, logs and records, verified.", "tpuctl pull --to {results}/result"),
    ("The TPU is deleted, so that nothing bills.", "tpuctl down --yes"),
    ("The trained model, evaluated on the held-out fifth by another program.",
     "python demo/evaluate_digits.py {results}/result/checkpoints {results}/digits/test --at-least 0.95"),
)  # fmt: skip
"""The purpose of each step, and the command as a user types it."""


def main() -> int:
    """Run the steps; returns the exit code of the first one that fails, else 0."""
    os.chdir(ROOT)
    results = Path(sys.argv[1] if len(sys.argv) > 1 else ".demo")
    for folder in ("digits", "result", "state"):
        shutil.rmtree(results / folder, ignore_errors=True)
    environment = simulator_environment(results)
    began = time.monotonic()
    try:
        codes = (run_step(purpose, text.format(results=results), environment) for purpose, text in STEPS)
        code = next((code for code in codes if code), 0)
    finally:
        stopped = run_step("The simulator is stopped.", "tpuctl sim stop", environment)
    print(f"\n{time.monotonic() - began:.0f} s in total; the results are in {results}/result", flush=True)
    state = shlex.quote(environment["TPUCTL_STATE"])
    print("To type commands yourself, on the same simulator, where nothing bills:")
    print(f"  source .venv/bin/activate\n  export TPUCTL_TARGET=sim TPUCTL_STATE={state}", flush=True)
    return code or stopped


def run_step(purpose: str, command: str, environment: dict[str, str]) -> int:
    """Print a command and run it; returns its exit code."""
    print(f"\n# {purpose}\n$ {command}", flush=True)
    program, *arguments = shlex.split(command)
    return subprocess.run([str(BIN / program), *arguments], env=environment, check=False).returncode


def simulator_environment(results: Path) -> dict[str, str]:
    """Return the environment with the simulator as target and a state folder for the demo."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TPUCTL_")}
    return {**inherited, "TPUCTL_TARGET": "sim", "TPUCTL_STATE": str(results.resolve() / "state")}


if __name__ == "__main__":
    sys.exit(main())
