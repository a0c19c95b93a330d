"""Trains the digits job in this process and evaluates its checkpoints; prints JSON."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import digits

from tests.jobs import runs
from tests.paths import ROOT

FOLDER = Path(sys.argv[1])
TEST = FOLDER / "png/test"
REPORT: dict[str, Any] = {}


def evaluate(*arguments: str | Path) -> dict[str, Any]:
    """Run the evaluation program; returns its output and its exit code or error."""
    sys.argv = ["evaluate_digits.py", *map(str, arguments)]
    printed, end = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(str(ROOT / "demo/evaluate_digits.py"), run_name="__main__")
        except SystemExit as error:
            end = error.code
        except Exception as error:  # TensorFlow's own, of any type
            end = f"{type(error).__name__}: {error}"
    return {"printed": printed.getvalue(), "end": end}


if __name__ == "__main__":
    out = FOLDER / "cpu"
    REPORT["trained"] = runs.run(digits.main, "--data", FOLDER / "records", "--epochs", "10", "--out", out)
    checkpoints = out / "checkpoints"
    REPORT["evaluated"] = evaluate(checkpoints, TEST, "--at-least", "0.95")
    REPORT["too low"] = evaluate(checkpoints, TEST, "--at-least", "1.01")
    other = FOLDER / "other.py"
    text = (ROOT / "jobs/digits.py").read_text()
    other.write_text(text.replace("layers.Flatten(),", "layers.Flatten(), layers.Dense(20),"))
    REPORT["another model"] = evaluate(checkpoints, TEST, "--job", other)
    print(json.dumps(REPORT))
