"""Runs a program that looks at a job, in a process of its own, and returns the JSON that it prints last."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tensorflow_python import PYTHON

HERE = Path(__file__).parent
JOBS = HERE.parents[1] / "jobs"


def report_of(program: str, folder: Path, **variables: str) -> Any:
    """Return what `program`, a file beside this one, says of its work in `folder`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TPU")}
    paths = (str(JOBS), variables.pop("PYTHONPATH", ""), inherited.get("PYTHONPATH", ""))
    done = subprocess.run(
        [PYTHON, str(HERE / program), str(folder)],
        env=inherited
        | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        | variables
        | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
