"""OS Login, on which hosts ignore the keys in metadata: `up` says so before it creates and when it waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.sim.simulator import PROJECT

Tpuctl = Callable[..., CommandResult]
UP = ("up", "v3-8", "--name", "n1", "--yes")
WARNING = "OS Login is on: hosts ignore the SSH key that tpuctl gives them."


@pytest.fixture
def project(simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets `enable-oslogin` in the project's metadata; nobody waits for hosts that refuse a key."""
    monkeypatch.setattr("tpuctl.flows.hosts.way_in.OS_LOGIN_PATIENCE", 0.0)
    monkeypatch.setattr("tpuctl.flows.hosts.way_in.LOOK_INTERVAL", 0.0)

    def set_os_login(value: str) -> None:
        async def change() -> None:
            projects = simulator.simulator.projects
            projects.set_metadata(PROJECT, {"enable-oslogin": value}, projects.get(PROJECT).fingerprint)

        simulator.call(change())

    return set_os_login


@pytest.mark.parametrize("value", ["TRUE", "true", "1"])
def test_a_project_with_os_login_is_noticed(
    tpuctl: Tpuctl, simulator: RunningSimulator, project: Callable[[str], None], value: str
) -> None:
    project(value)
    asked = tpuctl(*UP[:-1])
    assert asked.code == 10
    assert WARNING in asked.err
    assert "--metadata enable-oslogin=FALSE" in asked.err
    assert "gcloud compute os-login ssh-keys add" in asked.err
    assert simulator.world.nodes.all() == []
    result = tpuctl(*UP)
    assert result.code == 8, result.err
    assert "OS Login is on for 'n1': its hosts ignore the SSH key" in result.err
    assert "Node 'n1' in europe-west4-a bills" in result.err
    assert "tpuctl down n1" in result.err


def test_a_node_can_do_without(
    tpuctl: Tpuctl, simulator: RunningSimulator, project: Callable[[str], None]
) -> None:
    project("TRUE")
    result = tpuctl(*UP, "--metadata", "enable-oslogin=FALSE")
    assert result.code == 0, result.err
    assert WARNING not in result.err


def test_a_nodes_own_metadata_counts(
    tpuctl: Tpuctl, simulator: RunningSimulator, project: Callable[[str], None]
) -> None:
    result = tpuctl(*UP, "--metadata", "enable-oslogin=TRUE")
    assert result.code == 8, result.err
    assert WARNING in result.err
    assert "OS Login is on for 'n1'" in result.err


@pytest.mark.parametrize("value", ["FALSE", "", "no"])
def test_without_os_login_keys_log_in(
    tpuctl: Tpuctl, simulator: RunningSimulator, project: Callable[[str], None], value: str
) -> None:
    project(value)
    result = tpuctl(*UP)
    assert result.code == 0, result.err
    assert WARNING not in result.err


def test_who_may_not_read_the_project_is_told_nothing(
    tpuctl: Tpuctl,
    simulator: RunningSimulator,
    project: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Compute Engine API may be off, or not for this account: the hosts decide."""
    monkeypatch.setattr("tpuctl.cloud.tpu.project_metadata.read_project_metadata", _denied)
    project("TRUE")
    assert WARNING not in tpuctl(*UP[:-1]).err
    project("FALSE")
    assert tpuctl(*UP).code == 0


def _denied(*_: object) -> None:
    from tpuctl.errors import ConfigError

    raise ConfigError("Required 'compute.projects.get' permission for 'projects/sim-project'")
