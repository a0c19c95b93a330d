"""Tests `tpuctl why`: the story of a TPU in order, also of one that is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.overview.test_ls import NOW, ZONE, give_run, only_node, queue
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.overview.story import LARGEST_DELETION
from tpuctl.host.keeper.records import EXPIRED, Deletion, deletions_folder, encode
from tpuctl.runs import Verdict

Tpuctl = Callable[..., CommandResult]


def story(tpuctl: Tpuctl, name: str) -> Any:
    result = tpuctl("why", name, "--json")
    assert result.code == 0, result.err
    return result.json


def texts(told: Any) -> list[str]:
    return [event["text"] for event in told["events"]]


def test_a_node_that_is_gone_has_its_whole_story(tpuctl: Tpuctl, cloud: Cloud, node: str) -> None:
    here = only_node(cloud)
    run = give_run(cloud, here)
    run.end(Verdict("digits-1", "failed", 1, "2126-01-31T12:00:00Z", "exit code 3", 3))
    deletion = Deletion("sim-project", ZONE, node, here.id.uid, "", EXPIRED, NOW, NOW, NOW)
    cloud.bucket.create(f"{NodePaths.of(here.id).keeper}1.json", encode(deletion))
    assert tpuctl("down", node, "--yes").code == 0
    told = story(tpuctl, node)
    assert texts(told) == [
        f"create of node n1 in {ZONE} asked for: v3-8, {here.runtime}, by {here.owner}",
        f"create of node n1 in {ZONE} done",
        "run digits-1 started (attempt 1)",
        "the TPU deletes itself: its time to live was over",
        f"delete of node n1 in {ZONE} asked for",
        f"delete of node n1 in {ZONE} done",
        "run digits-1 failed: exit code 3",
    ]
    assert [event["at"] for event in told["events"]] == sorted(event["at"] for event in told["events"])
    assert told["now"] == ["'n1' does not exist any more: nothing of it bills."]
    assert (told["unknown"], told["next"]) == ([], "tpuctl up v3-8 --name n1")


def test_the_folder_of_a_keeper_is_where_keepers_write() -> None:
    for project in ("sim-project", "example.com:p"):
        paths = NodePaths(project, ZONE, "n1", "7")
        assert paths.keeper == deletions_folder(project, ZONE, "n1", "7")
        known = NodePaths.parse(paths.folder.removeprefix("nodes/").rstrip("/"))
        assert known is not None
        assert (known.zone, known.name, known.uid) == (ZONE, "n1", "7")
        assert known.folder == paths.folder


def test_a_create_that_failed_says_why_and_what_to_do(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("stockout", zone=ZONE)
    assert tpuctl("up", "v3-8", "--name", "n1", "--zone", ZONE, "--yes").code == 5
    told = story(tpuctl, "n1")
    assert "failed (stockout): Node 'n1'" in texts(told)[-1]
    assert "There is no more capacity" in texts(told)[-1]
    assert told["hint"] == "Run the same command with another --zone, with --spot, or later."
    assert "To do: Run the same command" in tpuctl("why", "n1").err


def test_a_node_that_was_preempted_is_to_be_deleted(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.call(simulator.world.preempt(f"projects/sim-project/locations/{ZONE}/nodes/{node}"))
    told = story(tpuctl, node)
    assert told["now"] == [f"Node n1 in {ZONE} is PREEMPTED: taken back by the provider: never runs again."]
    assert told["next"] == f"tpuctl down n1 --zone {ZONE}"


def test_a_queued_resource_is_known_by_its_name_and_by_that_of_its_node(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator
) -> None:
    simulator.faults.add("stockout", zone=ZONE)
    queue(cloud)
    for name in ("q1", "n1"):
        while "waits for capacity" not in (told := story(tpuctl, name))["now"][-1]:
            pass
        assert f"create of queued resource q1 in {ZONE} asked for" in texts(told)
        assert "queued resource q1 asked for v3-8 as n1" in texts(told)
        assert told["next"] == "tpuctl ls --watch"


def test_a_running_create_has_not_ended(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("stuck-operation", method="CreateNode")
    assert tpuctl("up", "v3-8", "--name", "n1", "--zone", ZONE, "--detach", "--yes").code == 0
    told = story(tpuctl, "n1")
    assert texts(told) == [f"create of node n1 in {ZONE} asked for"]
    assert told["now"] == [f"Node n1 in {ZONE} is CREATING."]


def test_what_does_not_answer_is_named(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    simulator.faults.add("unreachable", zone="us-east1-d")
    simulator.faults.add("gcs-error", status="403")
    told = story(tpuctl, node)
    assert told["unknown"][0] == "no answer from us-east1-d"
    assert told["unknown"][1].startswith("the runs there are unknown: No permission")
    assert "Warning: no answer from us-east1-d." in tpuctl("why", node).err


def test_operations_that_may_not_be_listed_are_a_gap(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("permission", method="ListOperations")
    told = story(tpuctl, node)
    assert told["unknown"][0].startswith("the provider's operations are unknown: No permission")
    assert told["now"] == [f"Node n1 in {ZONE} is READY."]


def test_a_name_that_nobody_knows_is_not_found(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("why", "n2")
    assert result.code == 4
    assert "Nobody knows a TPU 'n2'" in result.err
    assert "Did you mean n1?" in result.err


def test_a_name_is_not_unknown_where_a_zone_is_silent(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    simulator.faults.add("unreachable", zone="us-east1-d")
    result = tpuctl("why", "n2")
    assert result.code == 9
    assert "us-east1-d" in result.err


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"project": 1}'])
def test_a_bad_record_of_a_keeper_is_a_warning(
    tpuctl: Tpuctl, cloud: Cloud, node: str, content: bytes
) -> None:
    paths = NodePaths.of(only_node(cloud).id)
    cloud.bucket.create(f"{paths.keeper}1.json", content)
    result = tpuctl("why", node)
    assert result.code == 0
    assert "is no record of a keeper" in result.err


def test_a_record_of_a_keeper_that_is_too_large_is_a_warning(tpuctl: Tpuctl, cloud: Cloud, node: str) -> None:
    name = f"{NodePaths.of(only_node(cloud).id).keeper}1.json"
    cloud.bucket.create(name, bytes(LARGEST_DELETION + 1))
    result = tpuctl("why", node)
    assert result.code == 0
    assert f"{name} is larger than 65,536 bytes" in result.err
