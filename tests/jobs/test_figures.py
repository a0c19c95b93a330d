"""Jobs train to the figures of the programs they come from, on the real data, without a TPU.

Each goes the way of a user: `tpuctl data fetch`, `tpuctl data upload`, the job. TPUCTL_TEST_DATA is a folder
for `fetch --from`, whose files need not be the published ones to the byte; without it they come from where
they are published. A test is skipped where they can be had from neither.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.forks.tensorflow_python import PYTHON
from tests.jobs import figures
from tests.paths import JOBS


class Figure(NamedTuple):
    """A job, the dataset it is trained on, and what it has to come to."""

    job: str
    dataset: str
    upload: tuple[str, ...]
    arguments: tuple[str, ...]
    number: str
    least: float


DATA = os.environ.get("TPUCTL_TEST_DATA")
"""A folder with the files of the datasets."""
TOKENS = ("--tokens", "words", "--vocabulary", "30000", "--length", "300")
PIECES = ("--tokens", "wordpiece", "--vocabulary", "8000", "--length", "128")
FIGURES = (
    Figure("fashion_mnist", "fashion_mnist", (), (), "val_accuracy", 0.8848),
    Figure("mnist", "mnist", (), ("--filters", "32"), "val_accuracy", 0.9875),
    Figure("mnist_custom_loop", "mnist", (), ("--filters", "64"), "accuracy", 0.9974),
    Figure("reuters", "reuters", TOKENS, (), "val_accuracy", 0.7),
    Figure("bert", "reuters", PIECES, ("--loop", "custom"), "val_accuracy", 0.7),
)
"""The MNIST jobs with as many filters as the figure takes: with the guide's 256 they take hours."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.job)
def test_a_job_trains_to_its_figure(
    figure: Figure, simulator: Any, tpuctl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_or_skip(figure.dataset, tpuctl)
    upload = ("data", "upload", figure.dataset, f"data/{figure.dataset}", *figure.upload, "--keep", "shards")
    assert tpuctl(*upload).code == 0
    command = [PYTHON, JOBS / f"{figure.job}.py", "--data", "shards", "--out", "out", *figure.arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert figures.of(done.stdout)[figure.number][-1] >= figure.least, done.stdout


def fetch_or_skip(name: str, tpuctl: Callable[..., Any]) -> None:
    """Leave the dataset in data/NAME."""
    given = ("--from", str(Path(DATA).absolute()), "--unverified") if DATA else ()
    done = tpuctl("data", "fetch", name, *given)
    if done.code == 9 and not DATA:
        pytest.skip(f"{name} cannot be fetched here, and TPUCTL_TEST_DATA names no folder of it")
    assert done.code == 0, done.err
