"""`sim env` says what the clients in the user's shell lack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator


@pytest.mark.parametrize(
    ("modules", "is_told"),
    [((), False), (("httplib2",), True), (("httplib2", "socks"), False), (("socks",), False)],
)
def test_pysocks_is_missed_where_httplib2_is_alone(
    simulator: RunningSimulator,
    tpuctl: Callable[..., CommandResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: tuple[str, ...],
    is_told: bool,
) -> None:
    programs, packages = tmp_path / "programs", tmp_path / "packages"
    for folder in (programs, packages):
        folder.mkdir()
    for module in modules:
        (packages / f"{module}.py").touch()
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    shown = tpuctl("sim", "env")
    assert shown.code == 0
    assert ("pip install PySocks" in shown.err) == is_told
    assert "PySocks" not in shown.out, "what a shell evaluates"


def test_a_path_without_python_is_none_of_its_business(
    simulator: RunningSimulator,
    tpuctl: Callable[..., CommandResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = tpuctl("sim", "env")
    assert (shown.code, "PySocks" in shown.err) == (0, False)
