"""Runs the recipes of docs/python.md and the README's example: the main job, the sweep, those that wait."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tpuctl
from tests.paths import ROOT
from tests.recipes.document import DOCUMENT, RECIPES
from tests.recipes.files import recipe
from tests.recipes.stage import lay_out
from tests.running_simulator import RunningSimulator
from tests.testing.document import PLACE, rendered
from tpuctl.errors import StockoutError
from tpuctl.testing import Simulator


def test_it_goes_from_images_to_results(
    simulator: RunningSimulator, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(Path.cwd())
    runpy.run_path(str(RECIPES / "main_job.py"))
    assert capsys.readouterr().out.splitlines() == [
        "data gs://sim-project-tpuctl/datasets/digits/1.0.0", "test accuracy 0.978",
    ]  # fmt: skip
    assert (Path(".demo") / "result" / "run.json").is_file()


@pytest.mark.slow
def test_it_trains_the_digits(simulator: RunningSimulator, home: Path) -> None:
    shutil.copytree(ROOT / "jobs", "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    for command in (
        (str(ROOT / "demo" / "write_digits.py"), ".demo/digits"),
        (str(RECIPES / "main_job.py"),),
        (str(ROOT / "demo" / "evaluate_digits.py"), ".demo/result/checkpoints", ".demo/digits/test"),
    ):
        result = subprocess.run(
            [sys.executable, *command], env={**os.environ}, capture_output=True, text=True, timeout=600
        )
        assert result.returncode == 0, result.stderr
    accuracy = float(result.stdout.split("test accuracy ")[1].split()[0])
    assert accuracy > 0.95


sweep = recipe("sweep")


@pytest.mark.daily
def test_each_rate_trains_on_a_tpu_of_its_own(home: Path, tpu_simulator_environment: Simulator) -> None:
    with tpuctl.Client() as client:
        losses = sweep.sweep(client)
        runs = client.runs()
    assert list(losses) == list(sweep.RATES)
    assert min(losses, key=lambda rate: losses[rate]) == 0.3
    assert len({run.node for run in runs}) == 3
    assert {run.state for run in runs} == {"succeeded"}
    assert tpu_simulator_environment.world.nodes() == []


def test_a_failure_stops_the_others_and_leaves_nothing_that_bills(
    home: Path, tpu_simulator_environment: Simulator
) -> None:
    tpu_simulator_environment.faults.add("stockout", count=1)
    with tpuctl.Client() as client, pytest.raises(StockoutError):
        sweep.sweep(client)
    assert tpu_simulator_environment.world.nodes() == []


stopping, concurrent_runs = recipe("stopping"), recipe("concurrent_runs")
WAITING = """
import os, time
while not os.path.exists(os.environ["MARK"]):
    time.sleep(0.05)
"""


@pytest.mark.daily
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


def test_it_shows_the_recipes_as_they_are() -> None:
    text = DOCUMENT.read_text()
    assert rendered(text, RECIPES) == text, "run: python -m tests.recipes.document"


def test_it_names_every_recipe() -> None:
    text = DOCUMENT.read_text()
    named = {match[1] for match in PLACE.finditer(text)} | set(re.findall(r"recipes/([\w.]+)\)", text))
    named |= {"train.py"} if "`train.py` stands for" in text else set()
    assert named == {path.name for path in RECIPES.iterdir() if path.is_file()}


def test_the_main_job_takes_ten_lines() -> None:
    lines = (RECIPES / "main_job.py").read_text().splitlines()
    assert len([line for line in lines if line]) <= 10


def test_every_call_of_the_table_is_one_of_the_api() -> None:
    table = DOCUMENT.read_text().split("## The calls")[1].split("\n## ")[0]
    owners = {"client": tpuctl.Client, "node": tpuctl.Node, "run": tpuctl.Run}
    calls = re.findall(r"\b(client|node|run)\.(\w+)", table)
    assert len(calls) > 20
    assert [call for call in calls if not hasattr(owners[call[0]], call[1])] == []


def test_the_workflow_runs_the_recipe() -> None:
    assert (RECIPES / "nightly.yml").read_text().endswith("      - run: python nightly.py data result\n")
