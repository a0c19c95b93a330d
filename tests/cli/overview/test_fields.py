"""The fields of nodes and queued resources in JSON, on which programs of users rely."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.overview.test_ls import NOW, ZONE, give_run, only_node, queue
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud

Tpuctl = Callable[..., CommandResult]
LIST = "schema nodes queued_resources unreachable runs_unknown maintenance_unknown"
NODE = (
    "name project zone accelerator state uid health health_description symptoms maintenance notes run "
    "expires idle_seconds bills price_per_hour cost_so_far spot runtime created owner queued_resource "
    "addresses labels"
)
QUEUED = (
    "name project zone nodes accelerator state initiator error error_kind notes expires idle_seconds "
    "price_per_hour spot reservation runtime created valid_until owner labels"
)
PRICE = "amount currency source as_of reason"
FINAL = "2126-01-31T12:00:00Z"


def test_a_node_has_every_field(tpuctl: Tpuctl, cloud: Cloud, node: str) -> None:
    give_run(cloud, only_node(cloud))
    listed = tpuctl("ls", "--json").json
    assert " ".join(listed) == LIST
    assert (listed["schema"], listed["queued_resources"], listed["unreachable"]) == (1, [], [])
    assert (listed["runs_unknown"], listed["maintenance_unknown"]) == ("", "")
    (shown,) = listed["nodes"]
    assert " ".join(shown) == NODE
    assert shown["run"] == {
        "run": "digits-1",
        "attempt": 1,
        "started": shown["run"]["started"],
        "state": "running",
    }
    assert shown["run"]["started"]
    assert [" ".join(shown[name]) for name in ("price_per_hour", "cost_so_far")] == [PRICE, PRICE]
    assert shown["price_per_hour"]["amount"] == "9.768"
    assert {name: value for name, value in shown.items() if name in NODE_VALUES} == NODE_VALUES
    assert set(shown["labels"]) == {"managed-by", "tpuctl-owner"}
    described = tpuctl("describe", node, "--json").json
    assert " ".join(described) == f"{LIST} facts next"
    assert [" ".join(fact) for fact in described["facts"]] == ["name value from"] * len(described["facts"])
    assert described["next"] == "tpuctl logs digits-1 -f"
    assert " ".join(described["nodes"][0]) == NODE
    story = tpuctl("why", node, "--json").json
    assert " ".join(story) == "schema name events now unknown hint next"
    assert {" ".join(event) for event in story["events"]} == {"at from text"}
    assert (story["name"], story["unknown"]) == (node, [])


NODE_VALUES = {
    "name": "n1", "project": "sim-project", "zone": ZONE, "accelerator": "v3-8", "state": "READY",
    "health": "HEALTHY", "health_description": "", "symptoms": [], "maintenance": None, "notes": [],
    "expires": "", "idle_seconds": 0, "bills": True, "spot": False, "queued_resource": "",
}  # fmt: skip


def test_a_queued_resource_has_every_field(tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator) -> None:
    simulator.faults.add("stockout", zone=ZONE)
    queue(cloud, valid_until=FINAL)
    listed = tpuctl("ls", "--json").json
    assert " ".join(listed) == LIST
    (shown,) = listed["queued_resources"]
    assert " ".join(shown) == QUEUED
    assert {name: value for name, value in shown.items() if name in QUEUED_VALUES} == QUEUED_VALUES
    assert " ".join(shown["price_per_hour"]) == PRICE
    assert shown["created"] > NOW
    assert set(shown["labels"]) == {"managed-by", "tpuctl-owner"}


QUEUED_VALUES = {
    "name": "q1", "project": "sim-project", "zone": ZONE, "nodes": ["n1"], "accelerator": "v3-8",
    "error": "", "error_kind": "", "expires": "", "idle_seconds": 0, "spot": False, "reservation": "",
    "valid_until": FINAL,
}  # fmt: skip
