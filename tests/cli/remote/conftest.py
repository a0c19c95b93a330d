"""One simulator for the commands of a module, with a node of one host and a node of two."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import FOREIGN
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator, command_line
from tpuctl.cli.main import run
from tpuctl.sim.hosts.faults import EFFECTS

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
        patch.setenv("TPUCTL_CROSS_REGION", "yes")  # one of its TPUs is in another region than the bucket
        patch.setenv("COLUMNS", "200")
        patch.chdir(top / "work")
        simulator = RunningSimulator(top / "state" / "sim")
        try:
            for name, accelerator, zone in NODES:
                assert (
                    run(["up", accelerator, "--framework", "jax", "--zone", zone, "--name", name, "--yes"])
                    == 0
                )
            yield simulator
        finally:
            simulator.close()


@pytest.fixture
def faults(remote: RunningSimulator) -> Iterator[Callable[..., object]]:
    """Adds a fault, which ends with the test; one of hosts is in force at once."""

    def add(kind: str, **options: object) -> None:
        (remote.break_hosts if kind in EFFECTS else remote.faults.add)(kind, **options)

    yield add
    remote.heal_hosts()


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
        started = commands.Program(
            *(("-c", program) if program else ("-m", "tpuctl")), *arguments,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
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
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with commands.start(*arguments, **pipes, text=True, env={**os.environ, **variables}) as started:
            out, err = started.communicate(typed, timeout=120)
        return CommandResult(started.returncode, out, err)

    return call
