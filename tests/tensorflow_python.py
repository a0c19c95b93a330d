"""The Python that runs the programs for the emulated TPU: this one, or one with another TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PYTHON = os.environ.get("TPUCTL_TEST_TENSORFLOW") or sys.executable


def python(
    *arguments: str | Path, variables: Mapping[str, str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run it as where nothing tells of a TPU but `variables`; `options` are those of `subprocess.run`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TPU")}
    return subprocess.run(
        [PYTHON, *map(str, arguments)],
        env=inherited | {"TF_CPP_MIN_LOG_LEVEL": "3"} | dict(variables),
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def report_of(*arguments: str | Path, variables: Mapping[str, str], **options: Any) -> Any:
    """Run a program to its end, and return the JSON that it prints last."""
    done = python(*arguments, variables=variables, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
