"""Runs a program that looks at a job, in a process of its own, and returns the JSON that it prints last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tensorflow_python

HERE = Path(__file__).parent
JOBS = HERE.parents[1] / "jobs"


def report_of(program: str, folder: Path, **variables: str) -> Any:
    """Return what `program`, a file beside this one, says of its work in `folder`."""
    paths = (str(JOBS), variables.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", ""))
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return tensorflow_python.report_of(HERE / program, folder, variables=variables)
