"""Fixtures: a simulator that enforces the roles of an applied example of terraform/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.iam.rehearsal import Start, start


@pytest.fixture
def rehearse(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """A function that starts a simulator which enforces an example's roles."""
    running: list[RunningSimulator] = []

    def call(*arguments: object, **options: object) -> RunningSimulator:
        running.append(start(monkeypatch, tmp_path, *arguments, **options))  # type: ignore[arg-type]
        return running[0]

    yield call
    for simulator in running:
        simulator.close()
