"""A pytest plugin: what all processes of a run need before their first test, one of them computes.

The parameters of tests that come from running the code under test are the same in each process, and cost as
much as many tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = "TESTS_SHARED_VALUES"
"""Variable with the folder of the values, for the processes of pytest-xdist."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder in the process that leads the run."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="shared-")
        os.environ[FOLDER] = folder.name
        config.add_cleanup(folder.cleanup)


def shared(name: str, compute: Callable[[], Any]) -> Any:
    """Return what `compute` returns, read from JSON; the first process that asks for `name` calls it."""
    path = Path(os.environ[FOLDER]) / name
    with path.open("a+") as file:  # a process that is killed leaves it empty, and its lock ends with it
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if not text:
            text = json.dumps(compute())
            file.write(text)
        return json.loads(text)
