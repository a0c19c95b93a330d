"""Tests which TPU a command means: by name, zone and owner, and with zones that do not answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.cloud.tpu.test_client import REQUEST
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import connect
from tpuctl.config import load
from tpuctl.nodes import CreateNode, CreateQueuedResource, QueuedResourceRequest, owner_label

Tpuctl = Callable[..., CommandResult]
HERE, THERE = "europe-west4-a", "us-central1-a"


@pytest.fixture
def twins(tpuctl: Tpuctl, simulator: RunningSimulator) -> str:
    """The name of two nodes, in two zones."""
    for zone in (HERE, THERE):
        result = tpuctl("up", "v3-8", "--name", "dup", "--zone", zone, "--yes")
        assert result.code == 0, result.err
    return "dup"


def zones_with_nodes(simulator: RunningSimulator) -> list[str]:
    return sorted(node.name.split("/")[3] for node in simulator.world.nodes.all())


@pytest.mark.parametrize("zone", [HERE, THERE])
def test_down_deletes_the_node_in_the_zone_that_was_named(
    tpuctl: Tpuctl, simulator: RunningSimulator, twins: str, zone: str
) -> None:
    result = tpuctl("down", twins, "--zone", zone, "--yes")
    assert result.code == 0, result.err
    assert zones_with_nodes(simulator) == [{HERE: THERE, THERE: HERE}[zone]]


def test_a_name_in_two_zones_is_an_error_that_lists_them(
    tpuctl: Tpuctl, simulator: RunningSimulator, twins: str
) -> None:
    result = tpuctl("down", twins, "--yes")
    assert result.code == 4
    assert f"There are 2 TPUs called 'dup': in {HERE} and in {THERE}." in result.err
    assert "--zone ZONE" in result.err
    assert zones_with_nodes(simulator) == [HERE, THERE]
    Path("job.py").write_text("print('hello')\n")
    submitted = tpuctl("submit", "job.py", "--tpu", twins)
    assert submitted.code == 4
    assert "There are 2 TPUs called 'dup'" in submitted.err


def test_without_names_down_keeps_to_the_zone_that_was_named(
    tpuctl: Tpuctl, simulator: RunningSimulator, twins: str
) -> None:
    assert tpuctl("down", "--zone", HERE, "--yes").code == 0
    assert zones_with_nodes(simulator) == [THERE]


def test_of_several_tpus_one_is_named_or_all_are_meant(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n2", "--yes").code == 0
    several = tpuctl("down", "--yes")
    assert several.code == 4
    assert several.err.endswith(
        "Error: You have 2 TPUs: n1, n2.\nHint: Name those to delete. All of them: tpuctl down --all\n"
    )
    assert tpuctl("down", "n1", "--all", "--yes").code == 2
    assert len(zones_with_nodes(simulator)) == 2
    assert tpuctl("down", "--all", "--yes").code == 0
    assert zones_with_nodes(simulator) == []


def test_a_silent_zone_keeps_nothing_else_from_being_deleted(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("unreachable", zone="us-east1-d")
    assert tpuctl("down", "--yes").code == 9, "a second one may be there"
    assert len(zones_with_nodes(simulator)) == 1
    result = tpuctl("down", "--all", "--yes")
    assert result.code == 9
    assert "No answer from us-east1-d: TPUs there may continue to bill." in result.err
    assert zones_with_nodes(simulator) == []


def test_submit_does_not_take_a_silent_zone_for_an_empty_one(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("unreachable", zone=HERE)
    Path("job.py").write_text("print('hello')\n")
    result = tpuctl("submit", "job.py")
    assert result.code == 9
    assert f"No answer from {HERE}: your TPU may be there." in result.err
    assert "tpuctl up" not in result.err


def test_another_account_with_the_same_user_name_is_another_owner(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_OWNER", "other@example.com")
    assert "You have no TPUs to delete." in tpuctl("down", "--yes").err
    elsewhere = tpuctl("down", "--all", "--zone", "us-central1-b", "--yes").err
    assert "You have no TPUs to delete in us-central1-b." in elsewhere
    listed = tpuctl("ls")
    assert node not in listed.out
    assert "Not listed: 1 of " in listed.err
    assert "--all-users" in listed.err
    assert node in tpuctl("ls", "--all-users").out
    Path("job.py").write_text("print('hello')\n")
    assert "There is no TPU to run on." in tpuctl("submit", "job.py").err
    monkeypatch.delenv("TPUCTL_OWNER")
    assert node in tpuctl("ls").out


def test_what_tpuctl_did_not_create_is_listed(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    cloud = connect(load({}))
    cloud.provider.begin(CreateNode(msgspec.structs.replace(REQUEST, labels={}))).wait("to be created", 30)
    cloud.close()
    listed = tpuctl("ls")
    assert REQUEST.id.name in listed.out
    assert "Not listed" not in listed.err


def test_a_queued_resource_is_listed_while_it_waits_and_deleted(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    simulator.faults.add("stockout", zone=HERE)
    cloud = connect(load({}))
    owner = {"managed-by": "tpuctl", "tpuctl-owner": owner_label(load({}).require("owner"))}
    queued = QueuedResourceRequest(
        cloud.provider.queued_resource_id(HERE, "q1"), msgspec.structs.replace(REQUEST, labels=owner)
    )
    cloud.provider.begin(CreateQueuedResource(queued)).wait("to be accepted", 30)
    cloud.close()
    assert "q1 " in tpuctl("ls").out
    assert [item["name"] for item in tpuctl("ls", "--json").json["queued_resources"]] == ["q1"]
    assert "queuedResources/q1?force=true" in tpuctl("down", "--dry-run").out
    result = tpuctl("down", "--yes")
    assert result.code == 0, result.err
    assert result.err.splitlines()[-1] == "Deleted q1."
    assert simulator.world.queued_resources.all() == []
