"""Trains the digits job in this process and judges its checkpoints; prints JSON."""

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
SEEN: dict[str, Any] = {}


def evaluate(*arguments: str | Path) -> dict[str, Any]:
    """Run the program that measures a model; returns what it printed and how it ended."""
    sys.argv = ["evaluate_digits.py", *map(str, arguments)]
    printed, end = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(str(ROOT / "demo/evaluate_digits.py"), run_name="__main__")
        except SystemExit as error:
            end = error.code
        except Exception as error:  # TensorFlow's own, of whatever type
            end = f"{type(error).__name__}: {error}"
    return {"printed": printed.getvalue(), "end": end}


if __name__ == "__main__":
    place = FOLDER / "cpu"
    SEEN["trained"] = runs.run(digits.main, "--data", FOLDER / "records", "--epochs", "10", "--out", place)
    checkpoints = place / "checkpoints"
    SEEN["judged"] = evaluate(checkpoints, TEST, "--at-least", "0.95")
    SEEN["too low"] = evaluate(checkpoints, TEST, "--at-least", "1.01")
    other = FOLDER / "other.py"
    text = (ROOT / "jobs/digits.py").read_text()
    other.write_text(text.replace("layers.Flatten(),", "layers.Flatten(), layers.Dense(20),"))
    SEEN["another model"] = evaluate(checkpoints, TEST, "--job", other)
    print(json.dumps(SEEN))
