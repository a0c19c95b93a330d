"""The lock of a simulator's folder: clients that look at it for a moment keep no simulator from it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tpuctl.errors import StateError
from tpuctl.sim import state
from tpuctl.sim.state import lock_folder, try_lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "simulator.lock"


def test_a_look_of_any_length_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "TIMEOUT", 0.0)
    with path.open("ab") as look, path.open("ab") as lock:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(state.time, "sleep", lambda seconds: look.close())
        assert try_lock(lock.fileno())
        assert look.closed


def test_another_simulator_is_not_waited_for_for_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "TIMEOUT", 0.0)
    first = lock_folder(path)
    try:
        with pytest.raises(StateError, match="A simulator already serves"):
            lock_folder(path)
    finally:
        os.close(first)
    os.close(lock_folder(path))
