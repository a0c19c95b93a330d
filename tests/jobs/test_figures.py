"""Jobs train to the figures of the programs that they are based on, with the real data, without a TPU.

Each runs `tpuctl data fetch`, `tpuctl data upload` and the job. TPUCTL_TEST_DATA is a folder for
`fetch --from`, whose files may differ from the published ones; without it the published files are downloaded.
A test is skipped if neither works.
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
    """A job, its dataset, and the least value of the metric that it has to reach."""

    job: str
    dataset: str
    upload: tuple[str, ...]
    arguments: tuple[str, ...]
    metric: str
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
"""The MNIST jobs with as many filters as the figure needs: with the guide's 256 they take hours."""


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
    job = subprocess.run(command, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stderr[-3000:]
    assert figures.of(job.stdout)[figure.metric][-1] >= figure.least, job.stdout


def fetch_or_skip(name: str, tpuctl: Callable[..., Any]) -> None:
    """Download the dataset to data/NAME, or skip the test."""
    source = ("--from", str(Path(DATA).absolute()), "--unverified") if DATA else ()
    fetch = tpuctl("data", "fetch", name, *source)
    if fetch.code == 9 and not DATA:
        pytest.skip(f"{name} cannot be downloaded here, and TPUCTL_TEST_DATA is not set")
    assert fetch.code == 0, fetch.err
