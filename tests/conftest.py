"""Fixtures: a simulator in this process, an isolated environment, and the command line as a function."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.running_simulator import CommandResult, RunningSimulator, command_line
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.config.files import use_plain_letters

pytest_plugins = (
    "tests.contract.recorder",
    "tests.ordering.file_order",
    "tests.ordering.garbage",
    "tests.ordering.processes",
    "tests.isolation.memory_disk",
    "tests.isolation.left_simulators",
    "tests.forks.client",
    "tests.sim.sqlite_without_disk",
)

use_plain_letters()  # before the first test imports protobuf

for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:  # a script starts background processes so,
        signal.signal(number, handler)  # and the processes that tests start inherit it

settings.register_profile(  # a machine that is slow or busy for a moment fails nothing
    "tests", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

FOREIGN = ("TPUCTL_", "CLOUDSDK_", "GOOGLE_", "GCLOUD_", "GCE_", "STORAGE_EMULATOR_HOST", "XDG_")
"""Variables of the developer's own environment that would change what a command does."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, an empty working folder, and nothing of the developer's own configuration."""
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)
    folder = tmp_path / "home"
    (tmp_path / "work").mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TPUCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TPUCTL_CROSS_REGION", "yes")  # tests choose zones, and there is one bucket
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.fixture
def simulator(home: Path, tmp_path: Path) -> Iterator[RunningSimulator]:
    """A fresh simulator that the commands of this test find running."""
    running = RunningSimulator(tmp_path / "state" / "sim")
    yield running
    running.close()


@pytest.fixture
def tpuctl(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """The command line as a function; an error that is a bug fails the test."""
    return command_line(capsys)


@pytest.fixture
def cloud(simulator: RunningSimulator) -> Iterator[Cloud]:
    """The real clients, connected to that simulator, each built at its first use."""
    clients = connect(load({}))
    yield clients
    clients.close()


@pytest.fixture
def bucket(cloud: Cloud) -> Bucket:
    """The simulator's bucket, as commands see it."""
    return cloud.bucket


@pytest.fixture
def node(simulator: RunningSimulator, tpuctl: Callable[..., CommandResult]) -> str:
    """The name of a READY v3-8."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    return "n1"
