"""Runs the README's example in Python: quickly with a program that takes no time, and as it is."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.recipes.document import RECIPES
from tests.recipes.stage import lay_out
from tests.running_simulator import RunningSimulator


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
