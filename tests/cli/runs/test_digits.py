"""The demo as a test: TensorFlow trains on a simulated v3-8, another program measures the accuracy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The demo, run once, as `make demo` runs it but in a folder of its own."""
    place = tmp_path_factory.mktemp("demo")
    command = [sys.executable, str(ROOT / "demo/main_job.py"), str(place)]
    return subprocess.run(command, capture_output=True, text=True, timeout=800, check=False), place


def test_every_step_succeeds(demo) -> None:
    process, _ = demo
    assert process.returncode == 0, process.stdout + process.stderr


def test_each_command_is_shown_as_typed(demo) -> None:
    process, _ = demo
    verbs = re.findall(r"^\$ tpuctl (\w+)", process.stdout, re.MULTILINE)
    assert verbs == ["up", "data", "submit", "logs", "pull", "down", "sim"]


def test_the_pulled_checkpoint_reads_19_of_20_digits_that_training_never_saw(demo) -> None:
    process, _ = demo
    accuracy = re.search(r"test accuracy (0\.\d+|1\.0+) \((\d+) of 360 images\)", process.stdout)
    assert accuracy, process.stdout
    assert float(accuracy[1]) >= 0.95


def test_the_held_out_fifth_took_no_part_in_the_training(demo) -> None:
    process, place = demo
    trained, held_out = (
        {path.read_bytes() for path in place.glob(f"digits/{split}/*/*.png")} for split in ("train", "test")
    )
    assert (len(trained), len(held_out)) == (1437, 360)
    assert not trained & held_out
    assert "8 TPU replicas, float32\n1437 images in 1 files" in process.stdout


def test_the_job_wrote_events_and_checkpoints(demo) -> None:
    _, place = demo
    assert list(place.glob("result/tensorboard/events.out.tfevents.*"))
    assert (place / "result/checkpoints/checkpoint").is_file()
    verdict = json.loads((place / "result/verdict.json").read_text())
    assert verdict["outcome"] == "succeeded"


def test_the_log_was_shipped_and_shown_while_the_job_ran(demo) -> None:
    """Counted before the last checkpoint that the job wrote: after its end, the log is complete anyway."""
    _, place = demo
    lines = (place / "state/sim/events.jsonl").read_text().splitlines()
    requests = [(event["what"], event["resource"]) for event in map(json.loads, lines)]
    written = [
        number
        for number, (what, resource) in enumerate(requests)
        if what == "objects.create" and "/checkpoints/" in resource
    ]
    meanwhile = requests[: written[-1]]
    for what in ("objects.create", "objects.get"):
        assert (
            len({resource for method, resource in meanwhile if method == what and "/log/" in resource}) >= 2
        )


def test_nothing_is_left_running(demo) -> None:
    _, place = demo
    table = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in table.splitlines() if str(place) in line]
    assert not (place / "state" / "sim" / "endpoints.json").exists()
