"""The command drill of a run: its TPU is lost on purpose, and what that cost is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import Backoff, poll

Tpuctl = Callable[..., CommandResult]
JOB = (
    '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    "import os, time\n"
    "first = 1 if os.environ['TPUCTL_ATTEMPT'] == '1' else 101\n"
    "for step in range(first, 121): print('step', step, flush=True)\n"
    "time.sleep(600)\n"
)
DRILLED_STATE = 'model_checkpoint_path: "ckpt-100"\nall_model_checkpoint_paths: "ckpt-100"\n'


@pytest.fixture
def run(tpuctl: Tpuctl, simulator: RunningSimulator, bucket: Bucket) -> StoredRun:
    """The run r1, 20 steps behind its checkpoint."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--spot", "--framework", "jax", "--yes").code == 0
    Path("job.py").write_text(JOB)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    stored = StoredRun(bucket, "r1")
    files = {"ckpt-100.index": "i", "ckpt-100.data-00000-of-00001": "d", "checkpoint": DRILLED_STATE}
    for name, text in files.items():
        bucket.upload(f"{stored.paths.checkpoints}{name}", [text.encode()], "text/plain")
    poll(
        lambda: True if "step 120\n" in tpuctl("logs", "r1").out else None, awaiting="step 120", timeout=120,
        backoff=Backoff(0.2, 1.0),
    )  # fmt: skip
    return stored


def check(told: dict[str, object], kind: str, outcome: str) -> None:
    assert (told["run"], told["kind"], told["outcome"], told["attempt"]) == ("r1", kind, outcome, 2)
    assert (told["saved"], told["resumed_from"], told["steps_lost"]) == ("", "ckpt-100", 20)
    assert isinstance(told["seconds_without_steps"], float)
    assert str(told["begun"]) <= str(told["restarted"]) <= str(told["next_step"])


def test_a_preemption_is_recovered_and_its_cost_is_told(tpuctl: Tpuctl, run: StoredRun) -> None:
    dry = tpuctl("drill", "r1", "--dry-run", "--json").json["requests"]
    assert [(each["method"], each["body"]) for each in dry] == [("SIMULATOR", "preemption")]
    asked = tpuctl("drill", "r1")
    assert asked.code == 10
    assert run.attempt_numbers() == [1]
    result = tpuctl("drill", "r1", "--yes", "--json")
    assert result.code == 0, result.err
    check(result.json["drill"], "preemption", "preempted")
    assert result.json["drill"]["node"] == "r1-2"
    (listed,) = tpuctl("runs", "--json").json["runs"]
    assert (listed["attempt"], listed["steps_lost"]) == (2, 20)
    assert "attempt 2, 20 steps lost" in tpuctl("runs").out
    facts = {fact["name"]: fact["value"] for fact in tpuctl("describe", "r1", "--json").json["run"]["facts"]}
    assert (facts["steps lost"], facts["gap"].endswith("on no TPU")) == ("20", True)


def test_a_reboot_is_left_to_the_hosts(tpuctl: Tpuctl, run: StoredRun, simulator: RunningSimulator) -> None:
    result = tpuctl("drill", "r1", "--reboot", "--notice", "0.5", "--yes")
    assert result.code == 0, result.err
    assert "attempt 2 on n1 in europe-west4-a" in result.out
    assert "steps lost        20\n" in result.out
    assert [node.name.rpartition("/")[2] for node in simulator.world.nodes.all()] == ["n1"]


def test_a_run_that_a_drill_would_end_is_refused(tpuctl: Tpuctl, node: str) -> None:
    Path("job.py").write_text(JOB)
    assert tpuctl("submit", "job.py", "--name", "r1", "--restarts", "0", "--tpu", node).code == 0
    poll(
        lambda: True if "running" in tpuctl("runs").out else None, awaiting="the script", timeout=120,
        backoff=Backoff(0.2, 1.0),
    )  # fmt: skip
    refused = tpuctl("drill", "r1", "--yes")
    assert (refused.code, "has no restarts: a drill would end it" in refused.err) == (4, True), refused.err
    assert tpuctl("drill", node, "--reboot", "--yes").code == 2
