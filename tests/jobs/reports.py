"""Runs a program that examines a job, in its own process, and returns the JSON that it prints last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.forks import tensorflow_python
from tests.paths import JOBS, ROOT


def report_of(program: str, folder: Path, **variables: str) -> Any:
    """Return the report of `tests/jobs/programs/PROGRAM.py` on its work in `folder`."""
    paths = (str(ROOT), str(JOBS), variables.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", ""))
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return tensorflow_python.report_of("-m", f"tests.jobs.programs.{program}", folder, variables=variables)
