"""One simulator for the commands of a module, with a node of one host and a node of two."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import FOREIGN
from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator, command_line
from tpuctl.cli.main import run

NODES = (("n1", "v3-8", "europe-west4-a"), ("pair", "v4-16", "us-central2-b"))


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSimulator]:
    """A simulator with `n1` (one host) and `pair` (two), in an environment that the module's tests share."""
    top = tmp_path_factory.mktemp("remote")
    for name in ("home", "work"):
        (top / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            patch.delenv(name)
        patch.setenv("HOME", str(top / "home"))
        patch.setenv("TPUCTL_STATE", str(top / "state"))
        patch.setenv("COLUMNS", "200")
        patch.chdir(top / "work")
        simulator = RunningSimulator(top / "state" / "sim")
        try:
            for name, accelerator, zone in NODES:
                assert run(["up", accelerator, "--zone", zone, "--name", name, "--yes"]) == 0
            yield simulator
        finally:
            simulator.close()


@pytest.fixture
def faults(remote: RunningSimulator) -> Iterator[Callable[..., object]]:
    """Adds a fault, which ends with the test."""
    yield remote.faults.add
    remote.faults.clear()


@pytest.fixture
def command(remote: RunningSimulator, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """The command line as a function, on that simulator."""
    return command_line(capsys)


@pytest.fixture
def starting(remote: RunningSimulator) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The command line in a process that a test can interrupt."""
    processes = []

    def start(*arguments: str, program: str = "") -> subprocess.Popen[str]:
        """Start it, or a program in Python that runs it."""
        command = [sys.executable, "-P", *(["-c", program] if program else ["-m", "tpuctl"]), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        processes.append(started)
        return started

    yield start
    for started in processes:
        started.kill()
        started.communicate()


@pytest.fixture
def process(remote: RunningSimulator) -> Callable[..., CommandResult]:
    """The command line in a process of its own, for a command that becomes another program."""

    def call(*arguments: str, typed: str = "", **variables: str) -> CommandResult:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "tpuctl", *arguments], input=typed, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables}, timeout=120,
        )  # fmt: skip
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)

    return call
