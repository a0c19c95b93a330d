"""Runs the recipes that wait: until somebody presses Enter, and for several runs with asyncio."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import tpuctl
from tests.recipes.files import recipe
from tests.running_simulator import RunningSimulator

stopping, concurrent_runs = recipe("stopping"), recipe("concurrent_runs")
WAITING = """
import os, time
while not os.path.exists(os.environ["MARK"]):
    time.sleep(0.05)
"""


def test_enter_ends_the_wait_and_not_the_run(
    simulator: RunningSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.py").write_text(WAITING)
    mark, is_waiting = tmp_path / "mark", threading.Event()
    monkeypatch.setattr("builtins.input", lambda prompt: str(is_waiting.wait()))
    with tpuctl.Client() as client:
        client.up("v3-8", name="n1")
        run = client.submit("job.py", environment={"MARK": str(mark)})
        is_waiting.set()
        assert stopping.wait_until_enter(run) not in ("succeeded", "failed", "stopped", "lost")
        mark.touch()
        assert run.wait().outcome == "succeeded"
        assert asyncio.run(concurrent_runs.wait_for_all(client, [run.name, run.name])) == ["succeeded"] * 2
