"""The digits job trains to its figure with and without a TPU; another program evaluates it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forks.tensorflow_python import python
from tests.jobs.datasets import shards
from tests.jobs.reports import report_of
from tests.paths import JOBS, ROOT
from tpuctl.sim.guest import environment

LINE = re.compile(r"^epoch +(\d+)  loss ([\d.]+)  accuracy ([\d.]+)", re.MULTILINE)


def losses(printed: str) -> dict[int, float]:
    """Return the loss printed for each epoch."""
    return {int(epoch): float(loss) for epoch, loss, _ in LINE.findall(printed)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as PNG files, and as shards."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, ROOT / "demo/write_digits.py", folder / "png"], check=True)
    shards(folder / "png", folder / "records", "digits")
    return folder


@pytest.fixture(scope="module")
def on_cpu(folder: Path) -> Any:
    """Ten epochs without a TPU, and the output of the evaluation."""
    return report_of("digits", folder)


@pytest.fixture(scope="module")
def on_tpu(folder: Path) -> str:
    """Ten epochs on two emulated cores, as a user starts the job."""
    variables = environment("v3-8", cores=2) | {"TPU_NAME": "local"}
    command = [JOBS / "digits.py", "--data", folder / "records", "--epochs", "10", "--out", folder / "tpu"]
    process = python(*command, variables=variables)
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def test_losses_do_not_depend_on_the_replicas(on_tpu: str, on_cpu: Any) -> None:
    assert on_tpu.startswith("2 TPU replicas, float32\n1437 images in 4 files, 11 steps of 128 an epoch\n")
    assert on_cpu["trained"].startswith("1 CPU replica, float32\n")
    on_two, on_one = losses(on_tpu), losses(on_cpu["trained"])
    assert list(on_two) == list(range(1, 11))
    # shown with four decimals; sums of floats in another order drift apart over the steps, 44 in four epochs
    first = (1, 2, 3, 4)
    assert [on_two[epoch] for epoch in first] == pytest.approx([on_one[epoch] for epoch in first], abs=1.5e-4)
    assert on_two == pytest.approx(on_one, abs=5e-4)


def test_its_result_and_its_checkpoint_are_written(on_tpu: str, folder: Path) -> None:
    result = json.loads((folder / "tpu/outputs/result.json").read_text())
    assert result["step"] == 110
    assert result["accuracy"] > 0.98
    assert (folder / "tpu/checkpoints/ckpt-110.index").exists()


def test_the_evaluation_measures_the_checkpoint_on_the_held_out_images(on_cpu: Any) -> None:
    assert on_cpu["evaluated"]["end"] is None
    assert re.fullmatch(r"test accuracy 0\.9\d\d \(3[45]\d of 360 images\)\n", on_cpu["evaluated"]["printed"])


def test_the_evaluation_fails_below_the_least_accuracy(on_cpu: Any) -> None:
    assert on_cpu["too low"]["printed"].startswith("test accuracy ")
    assert on_cpu["too low"]["end"] == "The accuracy is below 1.01."


def test_the_evaluation_refuses_a_checkpoint_of_another_model(on_cpu: Any) -> None:
    assert on_cpu["another model"]["end"]
    assert on_cpu["another model"]["printed"] == ""
