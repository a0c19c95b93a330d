"""Programs written for a TPU, as others have published them, run unedited on a simulated host."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.forks.tensorflow_python import report_of
from tpuctl.sim.guest import environment

pytestmark = pytest.mark.slow

RUNNER = Path(__file__).parent / "programs" / "run_tutorial.py"
ADDRESS = "10.240.1.10:8470"
COLAB = {"COLAB_TPU_ADDR": ADDRESS, "TPU_NAME": f"grpc://{ADDRESS}"}
"""What a notebook of Google Colab found in its environment."""
TPU_VM = {"TPU_NAME": "local"}
"""The guide reads its shards from this machine's disk, which the worker of a remote TPU could not."""
DATA = {
    "TUTORIAL_TRAIN_EXAMPLES": "1000",
    "TUTORIAL_TEST_EXAMPLES": "400",
    "TUTORIAL_REUTERS_EXAMPLES": "346",
    "TUTORIAL_FASHION_TRAIN": "640",  # 20 steps of 32, for each of 5 epochs
    "TUTORIAL_FASHION_TEST": "330",
}
QUICK = DATA | {
    "TUTORIAL_FIT_EPOCHS": "2",
    "TUTORIAL_FIT_STEPS_PER_EPOCH": "10",
    "TUTORIAL_FIT_VALIDATION_STEPS": "2",
    "TUTORIAL_RANGE": "10",
}
LONGER = QUICK | {
    "TUTORIAL_TRAIN_EXAMPLES": "2000",
    "TUTORIAL_TEST_EXAMPLES": "2000",
    "TUTORIAL_FIT_STEPS_PER_EPOCH": "20",
    "TUTORIAL_FIT_VALIDATION_STEPS": "10",
    "TUTORIAL_RANGE": "20",
}
LOOP = re.compile(r"Current step: (\d+), training loss: ([\d.]+), accuracy: ([\d.]+)%")


def run(*tutorials: str, folder: Path, cores: int, **variables: str) -> Any:
    """Run programs one after the other in one process, and return what each did, or how it failed."""
    program = {"TF_USE_LEGACY_KERAS": "1", "TUTORIAL_FOLDER": str(folder)}
    host = environment("v3-8", cores=cores)
    return report_of(RUNNER, *tutorials, variables=program | host | variables, cwd=folder)


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """What the programs of Colab notebooks did on the same remote TPU, and where."""
    folder = tmp_path_factory.mktemp("colab")
    programs = ("fashion_mnist", "reuters", "text_classifier")
    quick = DATA | {"TUTORIAL_FIT_STEPS_PER_EPOCH": "20"}  # which fashion_mnist alone asks for
    return run(*programs, folder=folder, cores=2, **quick, **COLAB), folder


def succeeded(ran: Any, tutorial: str) -> Any:
    """Return what a program did; it has to have come to its end."""
    assert ran[tutorial]["error"] == ""
    return ran[tutorial]


def check_guide(ran: Any, cores: int, steps: int) -> None:
    """Check what every block printed; the custom loops have epochs of `steps` steps."""
    ran = succeeded(ran, "tpu_guide")
    printed = "\n".join(ran["printed"])
    assert ran["replicas"] == cores
    assert printed.count("LogicalDevice(name='/device:TPU:") == cores
    assert "c device:  /job:localhost/replica:0/task:0/device:TPU:0" in printed
    assert printed.count("[[22. 28.]\n [49. 64.]]") == 1 + cores
    assert f"  {cores - 1}: tf.Tensor(\n[[22. 28.]" in printed
    by_fit, by_several_steps = ran["fits"]
    for history in (by_fit, by_several_steps):
        assert history["val_sparse_categorical_accuracy"][-1] > 0.3  # a tenth by chance
    lines = [(int(step), float(loss), float(accuracy)) for step, loss, accuracy in LOOP.findall(printed)]
    assert [step for step, *_ in lines] == [steps * epoch for epoch in range(1, 7)]
    assert lines[-1][1] < lines[0][1]
    assert lines[-1][2] > 90


def test_every_block_of_tensorflows_tpu_guide_runs(tmp_path: Path) -> None:
    check_guide(run("tpu_guide", folder=tmp_path, cores=2, **QUICK, **TPU_VM), cores=2, steps=10)


def test_the_fashion_mnist_program_of_a_colab_notebook_runs(colab: tuple[Any, Path]) -> None:
    ran = succeeded(colab[0], "fashion_mnist")
    (history,) = ran["fits"]
    assert len(history["loss"]) == 5
    assert history["loss"][-1] < history["loss"][0] / 10
    (validated,) = history["val_sparse_categorical_accuracy"]  # validation_freq=5
    assert validated > 0.5
    assert (ran["replicas"], ran["weights"]) == (2, 108_810)


def test_the_reuters_program_of_a_colab_notebook_runs(colab: tuple[Any, Path]) -> None:
    ran = succeeded(colab[0], "reuters")
    assert f"Running on TPU  grpc://{ADDRESS}" in ran["printed"]
    assert "REPLICAS:  2" in ran["printed"]
    (history,) = ran["fits"]
    assert len(history["val_loss"]) == 10
    assert history["loss"][-1] < history["loss"][0]
    assert history["sparse_top_k_categorical_accuracy"][-1] > 0.2


def test_fit_and_custom_loop_of_a_text_classifier_on_a_remote_tpu_run(colab: tuple[Any, Path]) -> None:
    ran, folder = succeeded(colab[0], "text_classifier"), colab[1]
    printed = "\n".join(ran["printed"])
    assert "LogicalDevice(name='/job:worker/replica:0/task:0/device:TPU:1', device_type='TPU')" in printed
    assert ran["fits"][0]["accuracy"][-1] > 0.9
    accuracies = [
        float(accuracy) for accuracy in re.findall(r"Epoch \d: loss [\d.]+, accuracy ([\d.]+)", printed)
    ]
    assert len(accuracies) == 4
    assert accuracies[-1] > 0.9
    assert "File system scheme '[local]' not implemented" in printed
    assert "Saved:  checkpoint/tpu-model" in printed
    assert {path.name for path in (folder / "checkpoint").iterdir()} >= {"tpu-model.h5", "tpu-model.index"}


@pytest.mark.skipif("TPUCTL_EVERY" not in os.environ, reason="takes minutes: with TPUCTL_EVERY set")
@pytest.mark.timeout(3600)
def test_the_guide_runs_for_longer_on_all_cores(tmp_path: Path) -> None:
    check_guide(run("tpu_guide", folder=tmp_path, cores=8, **LONGER, **TPU_VM), cores=8, steps=20)
