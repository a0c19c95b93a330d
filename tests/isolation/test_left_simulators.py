"""A test that leaves a simulator running fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation import left_simulators
from tests.paths import ROOT
from tests.running_simulator import RunningSimulator
from tpuctl.cloud import simulator as simulator_process
from tpuctl.polling import poll
from tpuctl.simulator_folder import SimulatorFolder


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of tests without a home."""
    folder = tmp_path / "of the session"
    monkeypatch.setenv(left_simulators.STATE, str(folder))
    return folder


def tear_down(request: pytest.FixtureRequest) -> None:
    """Do what the plugin does after a test."""
    work = left_simulators.pytest_runtest_teardown(request.node)
    next(work)
    next(work, None)


def test_a_simulator_that_is_left_is_ended_and_the_test_fails(
    state: Path, request: pytest.FixtureRequest
) -> None:
    simulator_process.ensure(state / "sim")
    with pytest.raises(pytest.fail.Exception, match=r"it left a simulator running in .*: use "):
        tear_down(request)
    assert simulator_process.running(state / "sim") is None


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a process that does not serve is found in /proc")
def test_one_that_is_still_starting_is_ended_and_the_test_fails(
    state: Path, request: pytest.FixtureRequest
) -> None:
    """As a command leaves it that ends in the middle."""
    files = SimulatorFolder(state / "sim")
    files.path.mkdir(parents=True)
    files.log.touch()
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", f"--folder={files.path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        line = Path(f"/proc/{process.pid}/cmdline")
        poll(lambda: line.read_bytes() or None, awaiting="its command line", timeout=60)
        with pytest.raises(pytest.fail.Exception, match=r"it left a simulator running in .*: use "):
            tear_down(request)
        assert process.wait(60) == -signal.SIGKILL
    tear_down(request)


def test_one_in_this_process_is_its_fixtures(
    state: Path, request: pytest.FixtureRequest, simulator: RunningSimulator
) -> None:
    assert simulator_process.running(simulator.folder)
    tear_down(request)
    assert simulator_process.running(simulator.folder)


RUN = """
import sys
from tpuctl.cloud import simulator
def test_it(tmp_path):
    simulator.ensure(tmp_path / "sim", "--idle", "0")
    sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found in /proc")
def test_a_run_that_is_killed_leaves_no_simulator(home: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(RUN)
    options = ["-p", left_simulators.__name__, "--rootdir=.", "-s", f"--basetemp={tmp_path}/run"]
    served = tmp_path / "run/test_it0/sim"
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
    ) as run:
        poll(lambda: simulator_process.running(served), awaiting="the simulator", timeout=240)
        run.kill()
    poll(lambda: simulator_process.running(served) is None or None, awaiting="its end", timeout=240)
