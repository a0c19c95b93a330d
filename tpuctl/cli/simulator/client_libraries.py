"""Looks for what the clients in a user's shell lack to use the simulator."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

PROGRAM = """
from importlib.util import find_spec
raise SystemExit(0 if find_spec("httplib2") and not find_spec("socks") else 1)
"""
PATIENCE = 20.0
"""Seconds for a Python to start; one that takes longer is not looked into."""


def lacks_pysocks(environ: Mapping[str, str]) -> bool:
    """Whether the Python of a shell has httplib2 without PySocks, with which alone httplib2 uses proxies."""
    python = shutil.which("python3", path=environ.get("PATH"))
    if python is None:
        return False
    try:
        looked = subprocess.run(
            [python, "-c", PROGRAM],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return looked.returncode == 0
