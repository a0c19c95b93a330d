"""Tests the pytest plugin in a user's project: found by pytest, inert unless used, clear errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = {"aiohttp", "asyncio", "asyncssh", "click", "google", "grpc", "msgspec", "tpuctl.sim"}

LOADED = f"""
import sys
def test_nothing_heavy():
    assert "tpuctl.testing.pytest_plugin" in sys.modules
    assert not {HEAVY!r} & set(sys.modules)
    assert len([name for name in sys.modules if name.startswith("tpuctl")]) < 10
"""
USED = """
from tpuctl.testing import Simulator
def test_one(tpu_simulator, shared_tpu_simulator):
    assert isinstance(tpu_simulator, Simulator)
    assert tpu_simulator.endpoints.storage != shared_tpu_simulator.endpoints.storage
    shared_tpu_simulator.faults.add("stockout")
def test_two(tpu_simulator, shared_tpu_simulator):
    assert tpu_simulator.faults.all() == []
    assert len(shared_tpu_simulator.faults.all()) == 1
"""
WITHOUT_EXTRA = """
import sys
for name in ("aiohttp", "asyncssh", "grpc_status", "psutil"):
    sys.modules[name] = None  # the documented way to make an import fail
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def run(folder: Path, test: str, *python: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file, in a folder of its own."""
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, *(python or ("-m", "pytest")), "-q", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_it_imports_nothing_heavy_unless_used(tmp_path: Path) -> None:
    result = run(tmp_path, LOADED)
    assert result.returncode == 0, result.stdout


def test_its_fixtures_are_there(tmp_path: Path) -> None:
    result = run(tmp_path, USED)
    assert result.returncode == 0, result.stdout


def test_a_run_that_does_not_use_it_does_not_miss_the_extra(tmp_path: Path) -> None:
    result = run(tmp_path, "def test_it(): pass", "-c", WITHOUT_EXTRA)
    assert result.returncode == 0, result.stdout


def test_a_run_that_uses_it_is_told_what_to_install(tmp_path: Path) -> None:
    result = run(tmp_path, "def test_it(tpu_simulator): pass", "-c", WITHOUT_EXTRA)
    assert result.returncode == 1
    assert "pip install '.[sim]'" in result.stdout
