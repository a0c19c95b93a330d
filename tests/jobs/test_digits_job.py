"""The digits job trains, goes on from its checkpoints, and is evaluated apart from its own log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tpuctl.sim.guest import environment

ROOT = Path(__file__).parents[2]
JOB = ROOT / "jobs" / "digits.py"
EVALUATE = ROOT / "demo" / "evaluate_digits.py"
LINE = re.compile(r"^epoch +(\d+)  loss ([\d.]+)  accuracy ([\d.]+)  [\d,]+ images/s$", re.MULTILINE)


def python(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TPU")}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=inherited | {"TF_CPP_MIN_LOG_LEVEL": "3"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True)
class Training:
    """Where a run of the job puts things, and what its attempts printed."""

    folder: Path
    outputs: list[str]

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def losses(self) -> dict[int, float]:
        """The loss printed for each epoch."""
        return {int(epoch): float(loss) for out in self.outputs for epoch, loss, _ in LINE.findall(out)}

    @property
    def last_loss(self) -> float:
        """The last epoch's loss, not rounded."""
        return float(json.loads((self.folder / "model" / "result.json").read_text())["loss"])


def train(folder: Path, data: Path, attempts: tuple[int, ...], **variables: str) -> Training:
    """Run the job once for each number of epochs in `attempts`."""
    outputs = []
    for epochs in attempts:
        places = {
            "TPUCTL_DATA_DIR": str(data),
            "TPUCTL_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "TPUCTL_TENSORBOARD_DIR": str(folder / "tensorboard"),
            "TPUCTL_MODEL_DIR": str(folder / "model"),
        }
        done = python(JOB, "--epochs", str(epochs), **places, **variables)
        assert done.returncode == 0, done.stderr[-3000:]
        outputs.append(done.stdout)
    return Training(folder, outputs)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as PNG files."""
    folder = tmp_path_factory.mktemp("digits") / "png"
    done = python(ROOT / "demo" / "write_digits.py", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def data(pictures: Path) -> Path:
    """The training images as TFRecord shards."""
    folder = pictures.parent / "records"
    done = python(Path(__file__).parent / "write_shards.py", pictures, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def on_tpu(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Training:
    """Ten epochs on two emulated cores, in two attempts."""
    return train(
        tmp_path_factory.mktemp("tpu"), data, (4, 10), TPU_NAME="local", **environment("v3-8", cores=2)
    )


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Training:
    """Ten epochs without a TPU, in one attempt."""
    return train(tmp_path_factory.mktemp("cpu"), data, (10,))


def test_the_second_attempt_goes_on_after_the_last_checkpoint(on_tpu: Training) -> None:
    first, second = on_tpu.outputs
    assert "2 replicas, 1437 images in 4 files, 11 steps of 128 an epoch" in first
    assert [int(epoch) for epoch, _, _ in LINE.findall(first)] == [1, 2, 3, 4]
    assert f"going on from {on_tpu.checkpoints / 'ckpt-4'}" in second
    assert [int(epoch) for epoch, _, _ in LINE.findall(second)] == [5, 6, 7, 8, 9, 10]
    assert (on_tpu.checkpoints / "ckpt-10.index").exists()


def test_losses_do_not_depend_on_the_replicas_nor_on_the_interruption(
    on_tpu: Training, on_cpu: Training
) -> None:
    assert "1 replicas" in on_cpu.outputs[0]
    # shown with four decimals; sums of floats in another order drift apart over the steps, 44 in four epochs
    assert {epoch: on_tpu.losses[epoch] for epoch in (1, 2, 3, 4)} == pytest.approx(
        {epoch: on_cpu.losses[epoch] for epoch in (1, 2, 3, 4)}, abs=1.5e-4
    )
    assert on_tpu.losses == pytest.approx(on_cpu.losses, abs=5e-4)
    assert on_tpu.last_loss == pytest.approx(on_cpu.last_loss, abs=5e-4)


def test_it_leaves_tensorboard_events_of_every_attempt(on_tpu: Training) -> None:
    events = sorted((on_tpu.folder / "tensorboard").glob("events.out.tfevents.*"))
    assert len(events) == 2
    assert all(b"images_per_second" in path.read_bytes() for path in events)


def test_the_evaluation_measures_the_checkpoint_on_the_held_out_images(
    on_tpu: Training, pictures: Path
) -> None:
    done = python(EVALUATE, on_tpu.checkpoints, pictures / "test", "--at-least", "0.95")
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.fullmatch(r"test accuracy 0\.9\d\d \(3[45]\d of 360 images\)\n", done.stdout)


def test_the_evaluation_ends_with_1_below_what_is_asked(on_cpu: Training, pictures: Path) -> None:
    done = python(EVALUATE, on_cpu.checkpoints, pictures / "test", "--at-least", "1.01")
    assert done.returncode == 1
    assert done.stdout.startswith("test accuracy ")
    assert "below 1.01" in done.stderr


def test_the_evaluation_refuses_a_checkpoint_of_another_model(
    on_cpu: Training, pictures: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.py"
    other.write_text(JOB.read_text().replace("layers.Flatten(),", "layers.Flatten(), layers.Dense(20),"))
    done = python(EVALUATE, on_cpu.checkpoints, pictures / "test", "--job", other)
    assert done.returncode != 0
    assert done.stdout == ""


def test_without_a_data_folder_it_ends_with_2_and_one_sentence() -> None:
    done = python(JOB)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "digits: set TPUCTL_DATA_DIR to the folder of the digits-train.tfrecord-* files." in done.stderr


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    done = python(JOB, TPUCTL_DATA_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "the 0 training images" in done.stderr


def test_it_imports_nothing_of_tpuctl_and_its_header_says_what_it_needs() -> None:
    text = JOB.read_text()
    assert not re.search(r"^\s*(import|from) tpuctl", text, re.MULTILINE)
    header = text.split("# ///\n")[0]
    for line in (
        "# /// script",
        '# accelerator = "v3-8"',
        '# dataset = "digits"',
        '# framework = "tensorflow"',
    ):
        assert line in header.splitlines()
