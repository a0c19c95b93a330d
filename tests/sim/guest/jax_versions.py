"""Tests the emulated TPU with several releases of JAX up to the newest; the exit code is 1 when one fails.

`make test-jax` does so; `VERSIONS="0.6 newest"` picks some. Each release has an environment of its own in
`.jax/`, of Python 3.12 where this machine has it, which JAX needs from 0.11 on; the tests run in `.venv`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENTS = ROOT / ".jax"
NEWEST = "newest"
VERSIONS = ("0.5", "0.6", "0.7", "0.8", "0.9", "0.10", NEWEST)
TESTS = Path(__file__).with_name("test_jax.py")


def main() -> int:
    """Test every requested release, and say which passed."""
    outcomes = {version: _tested(version) for version in os.environ.get("VERSIONS", "").split() or VERSIONS}
    for version, code in outcomes.items():
        print(f"JAX {_release(version)}: {'failed' if code else 'passed'}")
    return int(any(outcomes.values()))


def _tested(version: str) -> int:
    python = _environment(version)
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=900", str(TESTS)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"TPUCTL_TEST_JAX": str(python)}).returncode


def _environment(version: str) -> Path:
    """Return the Python that has this release, made when it is not there yet."""
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([_interpreter(), "-m", "venv", "--clear", folder], check=True)
        release = "jax" if version == NEWEST else f"jax=={version}.*"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, release], check=True)
        (folder / "ready").touch()
    return python


def _interpreter() -> str:
    found = shutil.which("python3.12") or ""
    ended = subprocess.run([found, "-c", "import ensurepip, venv"], capture_output=True) if found else None
    return sys.executable if ended is None or ended.returncode else found


def _release(version: str) -> str:
    program = "from importlib.metadata import version as v; print(v('jax'))"
    command = [_environment(version), "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
