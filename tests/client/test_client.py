"""Tests the client as a user of Python sees it: from a TPU to the results of a run, against the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpuctl
from tests.running_simulator import RunningSimulator

SCRIPT = """
import os
import pathlib
print("step 1 loss 0.5", flush=True)
print("worker", os.environ["TPUCTL_WORKER"])
"""


@pytest.fixture
def script(home: Path) -> Path:
    """A job that needs nothing, in the working folder."""
    path = Path("train.py")
    path.write_text(SCRIPT)
    return path


def test_a_run_from_a_tpu_to_its_results(simulator: RunningSimulator, script: Path) -> None:
    steps: list[tpuctl.Progress] = []
    with tpuctl.Client() as client:
        node = client.up("v3-8", name="n1", progress=steps.append)
        assert (node.name, node.state) == ("n1", "READY")
        run = client.submit(script, ["--epochs", "3"])
        end = run.wait()
        assert (end.outcome, end.succeeded, end.error) == ("succeeded", True, None)
        assert [line.text for line in run.logs()] == ["step 1 loss 0.5", "worker 0"]
        assert run.state == "succeeded"
        copy = run.pull("result")
        assert (copy.folder / "run.json").is_file()
        (attempt,) = run.attempts
        assert (attempt.number, attempt.node) == (1, "n1")
        assert run.cost.currency == "USD"
        assert [info.name for info in client.nodes()] == ["n1"]
        assert [info.name for info in client.runs()] == [run.name]
        assert client.run().name == client.run(run.name).name == run.name
        node.down()
        assert client.nodes() == ()
    assert "deleted n1" not in [step.text for step in steps]
    assert any("SSH" in step.text for step in steps)


def test_a_script_from_nothing_to_its_results_by_one_call(simulator: RunningSimulator, script: Path) -> None:
    lines: list[str] = []
    steps: list[str] = []
    failing = script.with_name("failing.py")
    failing.write_text("raise SystemExit(3)")
    with tpuctl.Client() as client:
        first = client.run_script(
            script, up="v3-8", down=True, name="r1", machine={"spot": True},
            log=lambda line: lines.append(line.text), progress=lambda step: steps.append(step.text),
        )  # fmt: skip
        assert (first.end.succeeded, first.copy.run, first.deleted, first.kept) == (True, "r1", ("r1",), "")
        assert (first.copy.folder / "run.json").is_file()
        assert lines == ["step 1 loss 0.5", "worker 0"]
        assert any(text.startswith("creates r1, ") and "per hour" in text for text in steps)
        again = client.run_script(script, up="v3-8", down=True, name="r1")
        assert (again.end, again.copy.kept, again.deleted) == (first.end, first.copy.files, ())
        failed = client.run_script(failing, up="v3-8", down=True)
        assert (failed.end.outcome, failed.end.exit_code, len(failed.deleted)) == ("failed", 3, 1)
        with pytest.raises(tpuctl.errors.UsageError, match="machine has no name: the run decides that"):
            client.run_script(script, up="v3-8", machine={"name": "n1"})
        with pytest.raises(tpuctl.errors.UsageError, match="--down deletes the TPU of --up"):
            client.run_script(script, down=True)
        assert client.nodes() == ()
