"""Runs on four hosts of which some end without a word: their hosts say so, and the runs end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.worker.host import kill_with_guard
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING
from tpuctl.polling import Backoff, poll

SCRIPT = (
    '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    "import os, pathlib, time\npathlib.Path('../new').write_text(str(os.getppid()))\n"
    "pathlib.Path('../new').rename('../supervisor')\ntime.sleep(600)\n"
)
Command = Callable[..., CommandResult]


@pytest.fixture
def run(
    tpuctl: Command, cloud: Cloud, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> StoredRun:
    """A run whose four scripts run, and whose hosts are asked after no silence at all."""
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes").code == 0
    Path("job.py").write_text(SCRIPT)
    submitted = tpuctl("submit", "job.py", "--name", "r1")
    assert submitted.code == 0, submitted.err
    run = StoredRun(cloud.bucket, "r1")

    def all_run() -> bool | None:
        return all(status and status.state == RUNNING for status in run.last_attempt().statuses()) or None

    poll(all_run, awaiting="four workers", timeout=120, backoff=Backoff(0.1))
    told = "hosts/*/w*/home/.tpuctl/runs/r1/1/supervisor"
    poll(
        lambda: len(list(simulator.folder.glob(told))) == 4 or None,
        awaiting="four scripts", timeout=60, backoff=Backoff(0.02, 0.1),
    )  # fmt: skip
    for name in ("CHECK_NODE_AFTER", "ASK_HOST_AFTER"):
        monkeypatch.setattr(decision, name, -1.0)
    return run


def ended(run: StoredRun, cloud: Cloud) -> RunState:
    """Look until the run has a verdict."""

    def look() -> RunState | None:
        state = settle(run, Witnesses(cloud.provider, lambda: cloud.ssh))
        assert not isinstance(state.error, BadObjectError)
        return state if state.verdict else None

    return poll(look, awaiting="a verdict", timeout=120, backoff=Backoff(0.1, 0.5))


def supervisor(simulator: RunningSimulator, worker: int) -> int:
    home = next(Path(simulator.folder, "hosts").glob(f"*/w{worker}/home"))
    return int((home / ".tpuctl/runs/r1/1/supervisor").read_text())


def test_one_supervisor_stopped_and_another_killed_end_the_run(
    run: StoredRun, cloud: Cloud, simulator: RunningSimulator
) -> None:
    assert settle(run, Witnesses(cloud.provider, lambda: cloud.ssh)).verdict is None, "all hosts say: alive"
    kill_with_guard(supervisor(simulator, 1))
    os.kill(supervisor(simulator, 0), signal.SIGTERM)
    poll(
        lambda: ((first := run.last_attempt().statuses()[0]) and first.is_finished) or None,
        awaiting="its last word", timeout=60, backoff=Backoff(0.1),
    )  # fmt: skip
    verdict = ended(run, cloud).verdict
    assert verdict
    assert (verdict.outcome, verdict.silent) == (runs.STOPPED, (1,))
    assert verdict.evidence == ("worker 0 was ended by SIGTERM; what ran on worker 1 ended without a word")


@pytest.mark.slow
def test_a_slice_that_goes_with_one_that_is_preempted_is_preempted(
    tpuctl: Command, cloud: Cloud, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as stopped, since its node was deleted, and never started again."""
    monkeypatch.setattr(decision, "CHECK_NODE_AFTER", 1.0)
    assert tpuctl("up", "v5litepod-4", "--slices", "2", "--spot", "--name", "ms", "--yes").code == 0
    Path("job.py").write_text(SCRIPT)
    submitted = tpuctl("submit", "job.py", "--name", "r1", "--tpu", "ms-1")
    assert submitted.code == 0, submitted.err
    run = StoredRun(cloud.bucket, "r1")
    simulator.faults.add("preemption", node="ms-0", grace=0.0)
    verdict = ended(run, cloud).verdict
    assert verdict
    assert (verdict.outcome, verdict.restarts) == (runs.PREEMPTED, True)
    assert verdict.evidence.startswith("another slice was preempted: queued resource 'ms' is SUSPEND")


def test_a_host_that_dies_and_a_maintenance_end_the_run(
    run: StoredRun, cloud: Cloud, simulator: RunningSimulator
) -> None:
    """The node is READY again, and no host has a program of the run."""
    death = simulator.faults.add("host-death", node="pod", worker="1")
    poll(
        lambda: simulator.events.find(kind="fault", what="host-death") or None,
        awaiting="the death", timeout=60, backoff=Backoff(0.05),
    )  # fmt: skip
    simulator.faults.add("maintenance", node="pod", notice=0.5)
    poll(
        lambda: all(
            status and status.is_finished
            for worker, status in enumerate(run.last_attempt().statuses())
            if worker != 1
        )
        or None,
        awaiting="three last words", timeout=60, backoff=Backoff(0.1),
    )  # fmt: skip
    simulator.faults.remove(death.id)
    verdict = ended(run, cloud).verdict
    assert verdict
    assert verdict.outcome == runs.MAINTENANCE, verdict.evidence
