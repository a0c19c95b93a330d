"""Every job trains a few steps on a simulated TPU, from and to the bucket; one process runs them all.

The digits job goes the whole way of the README in `tests/cli/runs/test_digits.py`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.class_folders import picture
from tests.jobs.datasets import write_mnist
from tests.paths import JOBS, ROOT

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
    """Write pictures of digits, pictures in class folders, and texts in class folders."""
    write_mnist(folder / "mnist.npz", train=24, test=13)
    for split, count in (("train", 24), ("test", 11)):
        for number in range(count):
            name = ("red", "green")[number % 2]
            suffix = ("jpg", "png")[number // 2 % 2]
            picture(folder / "shades" / split / name / f"{number}.{suffix}", number % 2, (40, 32), number)
            words = WORDS[number % 3].split()
            text = folder / "texts" / split / words[0] / f"{number}.txt"
            text.parent.mkdir(parents=True, exist_ok=True)
            text.write_text(" ".join(words[(number * step) % 4] for step in range(20)))


def test_all_of_them(simulator: Any, node: str, tpuctl: Any) -> None:
    here = Path.cwd()
    write_sources(here)
    for name, source, *options in (
        ("mnist", "mnist.npz"),
        ("shades", "shades"),
        ("words", "texts", "--tokens", "words", "--vocabulary", "30", "--length", "40"),
        ("pieces", "texts", "--tokens", "wordpiece", "--vocabulary", "60", "--length", "40"),
    ):
        done = tpuctl("data", "upload", name, source, *options)
        assert done.code == 0, done.err
    shutil.copytree(JOBS, here / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROGRAM, here / "jobs")
    told = ("TPUCTL_SIM_CORES=2", "TPUCTL_SIM_CHECKS=error", "TF_CPP_MIN_LOG_LEVEL=3")
    done = tpuctl(
        "submit", "jobs/every_job.py", "--name", "all", *(part for one in told for part in ("--env", one))
    )
    assert done.code == 0, done.err
    done = tpuctl("logs", "-f", "all")
    assert done.code == 0, done.out[-3000:] + done.err
    found = json.loads(next(line for line in done.out.splitlines() if line.startswith('{"tpu_check"')))
    assert {name: one["code"] for name, one in found.items()} == dict.fromkeys(found, 0)
    assert "PerReplica" in found["tpu_check"]["printed"]
    assert tpuctl("pull", "all", "--to", "result").code == 0
    outputs = Path("result/outputs")
    for name in RUNS:
        printed = found[name]["printed"]
        assert printed.startswith("2 TPU replicas, bfloat16\n"), name
        assert "epoch  1  " in printed, name
        assert "measured: " in printed, name
        assert "expected on a v3-8, by a roofline model and not measured: " in printed, name
        assert json.loads((outputs / name / "outputs/result.json").read_text())["step"] == 3, name
        assert (outputs / name / "checkpoints/ckpt-3.index").is_file(), name
        assert list((outputs / name / "tensorboard").glob("events*")), name
    findings = [path for path in Path("result").rglob("*findings*") if path.is_file()]
    assert not [one for path in findings for one in json.loads(path.read_text())["findings"]]


@pytest.mark.parametrize("job", sorted(path.stem for path in JOBS.glob("*.py")))
def test_no_job_is_forgotten(job: str) -> None:
    assert f"import {job}\n" in PROGRAM.read_text() or job == "digits"
