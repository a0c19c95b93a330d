"""A test that leaves a simulator running fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.isolation import left_simulators
from tests.running_simulator import RunningSimulator
from tpuctl.cloud import simulator as simulator_process


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


def test_one_in_this_process_is_its_fixtures(
    state: Path, request: pytest.FixtureRequest, simulator: RunningSimulator
) -> None:
    assert simulator_process.running(simulator.folder)
    tear_down(request)
    assert simulator_process.running(simulator.folder)
