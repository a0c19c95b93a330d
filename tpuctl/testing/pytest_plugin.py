"""Defines pytest fixtures; nothing is imported or run unless a test uses one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tpuctl.testing.simulator import Simulator


@pytest.fixture
def tpu_simulator() -> Iterator[Simulator]:
    """A fresh simulator for this test alone."""
    with Simulator() as sim:
        yield sim


@pytest.fixture(scope="session")
def shared_tpu_simulator() -> Iterator[Simulator]:
    """One simulator for all tests of the run; they have to name what they create differently."""
    with Simulator() as sim:
        yield sim


@pytest.fixture
def tpu_simulator_environment(tpu_simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> Simulator:
    """A fresh simulator; this process's environment points clients to it, also those of its subprocesses."""
    for name, value in tpu_simulator.environment.items():
        monkeypatch.setenv(name, value)
    return tpu_simulator
