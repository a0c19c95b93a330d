"""The jobs for JAX train on a simulated TPU; an interrupted run ends with the weights of one that was not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.datasets import shards, write_mnist
from tests.paths import JOBS
from tpuctl.data.options import Options, TokenOptions

MISSING = [name for name in ("flax", "optax", "orbax", "grain", "array_record") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; pip install '.[jax]'"),
]
OPTIONS = ("--epochs", "2", "--batch", "40", "--checkpoint-every", "4")
VALUES = """
import json, sys, jax, orbax.checkpoint as ocp
states = [ocp.StandardCheckpointer().restore(path) for path in sys.argv[1:]]
values = [jax.device_get(jax.tree.leaves(state)) for state in states]
print(json.dumps([[value.tobytes().hex() for value in state] for state in values]))
"""


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program on two emulated devices."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "TPU"))}
    devices = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return subprocess.run(
        [sys.executable, *arguments], env=own | devices, capture_output=True, text=True, check=False
    )


def arrayrecord(source: Path, folder: Path, name: str, **options: Any) -> Path:
    return shards(source, folder, name, file_format="arrayrecord", **options)


def corpus(folder: Path) -> Path:
    """Write texts that a model can learn: words that follow one another in the same order."""
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "home"]
    folder.mkdir()
    for split, count in (("train", 24), ("test", 5)):
        texts = [" ".join(words[(start + step) % len(words)] for step in range(14)) for start in range(count)]
        lines = [json.dumps({"text": text, "label": "all"}) for text in texts]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def dataset(program: str, folder: Path) -> Path:
    if program == "language_model.py":
        options = Options(tokens=TokenOptions("words", 14, 50))
        return arrayrecord(corpus(folder / "texts"), folder / "shards", "corpus", options=options)
    return arrayrecord(write_mnist(folder / "mnist.npz", train=40, test=11), folder / "shards", "mnist")


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("mnist.py", ("--batch", "20", "--epochs", "5", "--checkpoint-every", "4")),
        ("resnet.py", ("--batch", "20", "--epochs", "5", "--depth", "18", "--side", "8")),
        ("language_model.py", ("--batch", "4", "--epochs", "2")),
    ],
)
def test_an_interrupted_run_ends_with_the_same_weights_to_the_last_bit(
    tmp_path: Path, program: str, options: tuple[str, ...]
) -> None:
    data = dataset(program, tmp_path)

    def train(out: str, *more: str) -> subprocess.CompletedProcess[str]:
        places = ("--data", data, "--out", tmp_path / out)
        return python(JOBS / "with_jax" / program, *places, *options, *more)

    whole = train("whole")
    assert whole.returncode == 0, whole.stderr
    result = json.loads((tmp_path / "whole/result.json").read_text())
    stopped = train("stopped", "--stop-after", "5")
    assert (stopped.returncode, stopped.stdout.splitlines()[-1]) == (143, "stopped at step 5"), stopped.stderr
    resumed = train("stopped")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed at step 5\n" in resumed.stdout
    assert untimed(result) == untimed(json.loads((tmp_path / "stopped/result.json").read_text()))
    states = (tmp_path / out / f"checkpoints/{result['step']}/state" for out in ("whole", "stopped"))
    read = python("-c", VALUES, *states)
    assert read.returncode == 0, read.stderr
    first, second = json.loads(read.stdout)
    assert len(first) > 20
    assert first == second


def untimed(result: dict[str, float]) -> dict[str, float]:
    speed = ("step_ms", "examples_per_second", "waiting_for_input")
    return {name: value for name, value in result.items() if name not in speed}


def test_a_language_model_has_the_same_losses_on_one_host_and_on_four(simulator: Any, tpuctl: Any) -> None:
    arguments = ("--tokens", "words", "--vocabulary", "50", "--length", "14", "--file-format", "arrayrecord")
    upload = tpuctl("data", "upload", "corpus", str(corpus(Path("texts"))), *arguments)
    assert upload.code == 0, upload.err
    shutil.copytree(JOBS / "with_jax", "with_jax", ignore=shutil.ignore_patterns("__pycache__"))
    results = []
    for kind in ("v5litepod-4", "v5litepod-16"):
        up = tpuctl("up", kind, "--name", kind, "--framework", "jax", "--yes")
        assert up.code == 0, up.err
        options = (
            "--tpu",
            kind,
            "--name",
            f"on-{kind}",
            "--",
            "--epochs",
            "4",
            "--batch",
            "16",
            "--rate",
            "0.001",
        )
        submit = tpuctl("submit", "with_jax/language_model.py", *options)
        assert submit.code == 0, submit.err
        logs = tpuctl("logs", "-f", f"on-{kind}")
        assert logs.code == 0, logs.out[-3000:] + logs.err
        assert tpuctl("pull", f"on-{kind}", "--to", kind).code == 0
        (result,) = Path(kind).rglob("result.json")
        results.append(json.loads(result.read_text()))
        assert tpuctl("down", kind, "--yes").code == 0
    first, second = results
    assert (first["step"], second["step"]) == (6, 6)
    for name in ("loss", "val_loss"):  # sums in another order, of numbers that were rounded to bfloat16
        assert second[name] == pytest.approx(first[name], rel=0.001), name


@pytest.mark.parametrize(("kind", "devices"), [("v5litepod-4", 4), ("v5litepod-16", 16)])
def test_mnist_trains_on_one_host_or_four_from_and_to_the_bucket(
    simulator: Any, tpuctl: Any, kind: str, devices: int
) -> None:
    write_mnist(Path("mnist.npz"), train=200, test=30)
    upload = tpuctl("data", "upload", "mnist", "mnist.npz", "--file-format", "arrayrecord")
    assert upload.code == 0, upload.err
    up = tpuctl("up", kind, "--name", "n1", "--framework", "jax", "--yes")
    assert up.code == 0, up.err
    shutil.copytree(JOBS / "with_jax", "with_jax", ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--tpu", "n1", "--name", "digits", "--", "--epochs", "2", "--batch", "80")
    submit = tpuctl("submit", "with_jax/mnist.py", *options)
    assert submit.code == 0, submit.err
    logs = tpuctl("logs", "-f", "digits")
    assert logs.code == 0, logs.out[-3000:] + logs.err
    begun = rf"\b{devices} \w+ devices, 200 images, 5 steps$"
    assert re.search(begun, logs.out, re.MULTILINE), logs.out[:2000]
    assert tpuctl("pull", "digits", "--to", "result").code == 0
    (result,) = Path("result").rglob("result.json")
    assert json.loads(result.read_text())["step"] == 5
    assert logs.out.count("measured: ") == 1
