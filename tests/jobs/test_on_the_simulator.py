"""Every job trains a few steps on a simulated TPU, from and to the bucket; one process runs them all.

The digits job takes all steps of the README in `tests/cli/runs/test_digits.py`.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.class_folders import write_image
from tests.jobs.datasets import write_mnist
from tests.paths import JOBS, ROOT

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests/jobs/programs/every_job.py"

RUNS = (
    "mnist",
    "mnist_custom_loop",
    "fashion_mnist",
    "reuters",
    "cats_dogs",
    "bert_fit",
    "bert_custom",
    "resnet",
)
"""Those of `every_job` that train; each for an epoch of three steps."""
WORDS = ("corn wheat crop harvest", "oil barrel crude rig", "bank rate dollar yen")


def write_sources(folder: Path) -> None:
    """Write images of digits, images in class folders, and texts in class folders."""
    write_mnist(folder / "mnist.npz", train=24, test=13)
    for split, count in (("train", 24), ("test", 11)):
        for number in range(count):
            name = ("red", "green")[number % 2]
            suffix = ("jpg", "png")[number // 2 % 2]
            write_image(folder / "shades" / split / name / f"{number}.{suffix}", number % 2, (40, 32), number)
            words = WORDS[number % 3].split()
            text = folder / "texts" / split / words[0] / f"{number}.txt"
            text.parent.mkdir(parents=True, exist_ok=True)
            text.write_text(" ".join(words[(number * step) % 4] for step in range(20)))


def test_all_of_them(simulator: Any, node: str, tpuctl: Any) -> None:
    folder = Path.cwd()
    write_sources(folder)
    for name, source, *options in (
        ("mnist", "mnist.npz"),
        ("shades", "shades"),
        ("words", "texts", "--tokens", "words", "--vocabulary", "30", "--length", "40"),
        ("pieces", "texts", "--tokens", "wordpiece", "--vocabulary", "60", "--length", "40"),
    ):
        upload = tpuctl("data", "upload", name, source, *options)
        assert upload.code == 0, upload.err
    shutil.copytree(JOBS, folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROGRAM, folder / "jobs")
    variables = ("TPUCTL_SIM_CORES=2", "TPUCTL_SIM_CHECKS=error", "TF_CPP_MIN_LOG_LEVEL=3")
    environment = [option for variable in variables for option in ("--env", variable)]
    submit = tpuctl("submit", "jobs/every_job.py", "--name", "all", *environment)
    assert submit.code == 0, submit.err
    logs = tpuctl("logs", "-f", "all")
    assert logs.code == 0, logs.out[-3000:] + logs.err
    runs = json.loads(next(line for line in logs.out.splitlines() if line.startswith('{"tpu_check"')))
    assert {name: run["code"] for name, run in runs.items()} == dict.fromkeys(runs, 0)
    assert "PerReplica" in runs["tpu_check"]["printed"]
    assert tpuctl("pull", "all", "--to", "result").code == 0
    outputs = Path("result/outputs")
    for name in RUNS:
        printed = runs[name]["printed"]
        assert printed.startswith("2 TPU replicas, bfloat16\n"), name
        assert "epoch  1  " in printed, name
        assert "measured: " in printed, name
        assert "expected on a v3-8, by a roofline model and not measured: " in printed, name
        assert json.loads((outputs / name / "outputs/result.json").read_text())["step"] == 3, name
        assert (outputs / name / "checkpoints/ckpt-3.index").is_file(), name
        assert list((outputs / name / "tensorboard").glob("events*")), name
    reports = [path for path in Path("result").rglob("*findings*") if path.is_file()]
    assert not [finding for path in reports for finding in json.loads(path.read_text())["findings"]]


@pytest.mark.parametrize("job", sorted(path.stem for path in JOBS.glob("*.py")))
def test_no_job_is_forgotten(job: str) -> None:
    assert re.search(rf"^import {job}\b", PROGRAM.read_text(), re.MULTILINE) or job == "digits"
