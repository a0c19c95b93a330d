"""Runs the tests of the recipe docs/recipes/test_nightly.py, as its reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipes.files import recipe
from tpuctl.flows.runs.recovery import watch
from tpuctl.polling import Backoff
from tpuctl.testing import Simulator

nightly = recipe("nightly")
FIXTURES = ("client", "data", "script")
_tests = vars(recipe("test_nightly"))
globals().update({
    name: value for name, value in _tests.items() if name.startswith("test_") or name in FIXTURES
})  # fmt: skip


@pytest.fixture(autouse=True)
def alone(home: Path, tpu_simulator_environment: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own configuration, and a watcher that looks often."""
    monkeypatch.setattr(watch, "INTERVAL", 0.1)
    monkeypatch.setattr(watch, "PAUSES", Backoff(0.1, 0.5))  # also where it is preempted during a step


def test_the_exit_code_of_the_ci_job_is_that_of_the_error(
    tpu_simulator: Simulator, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tpu_simulator.faults.add("stockout", count=1)
    arguments = str(data), str(tmp_path / "out")
    assert nightly.main(*arguments) == 5
    assert "no more capacity" in capsys.readouterr().err
    assert nightly.main(*arguments) == 0
    assert "loss 0.0: good" in capsys.readouterr().out
