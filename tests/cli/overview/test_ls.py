"""Tests what `tpuctl ls` shows of each TPU and of what did not answer, cell by cell and as JSON."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from tests.cloud.tpu.test_client import REQUEST
from tests.flows.nodes.memory_provider import ZONE as PLAYED_ZONE
from tests.flows.nodes.memory_provider import node, queued_resource
from tests.flows.runs.records import ATTEMPT
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.nodes.table import allocation_table, note_unlisted
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING, WorkerStatus, encode
from tpuctl.nodes import CreateQueuedResource, Node, NodeState, QueuedResourceRequest, QueueState, owner_label
from tpuctl.runs import Tpu, Verdict

Tpuctl = Callable[..., CommandResult]
ZONE = "europe-west4-a"
NOW = "2026-01-31T12:00:00Z"


def give_run(cloud: Cloud, node: Node, name: str = "digits-1") -> StoredRun:
    """Write an attempt of a run on a node, whose worker runs."""
    run = StoredRun(cloud.bucket, name)
    run.create_attempt(msgspec.structs.replace(ATTEMPT, tpu=Tpu.of(node), workers=(0,)))
    status = WorkerStatus(0, 1, node.id.uid, RUNNING, NOW)
    cloud.bucket.upload(run.paths.status(1, 0), [encode(status)], "application/json")
    return run


def only_node(cloud: Cloud) -> Node:
    (node,) = cloud.provider.list_nodes().nodes
    return node


def change_node(simulator: RunningSimulator, **fields: object) -> None:
    """Set what only the service writes: no request can."""
    state = simulator.world.nodes._state
    (node,) = state.nodes.all()

    async def save() -> None:
        state.save_node(replace(node, spec={**node.spec, **fields}))

    simulator.call(save())


def queue(cloud: Cloud, **fields: object) -> None:
    """Queue a v3-8 of the user's own, called q1."""
    owner = {"managed-by": "tpuctl", "tpuctl-owner": owner_label(cloud.config.require("owner"))}
    request = QueuedResourceRequest(
        cloud.provider.queued_resource_id(ZONE, "q1"), msgspec.structs.replace(REQUEST, labels=owner)
    )
    cloud.provider.begin(CreateQueuedResource(replace(request, **fields))).wait("to be accepted", 30)  # type: ignore[arg-type]


def test_a_run_that_works_is_shown_with_its_state(tpuctl: Tpuctl, cloud: Cloud, node: str) -> None:
    assert "RUN" not in tpuctl("ls").out.split()
    run = give_run(cloud, only_node(cloud))
    listed = tpuctl("ls")
    assert "digits-1 (running)" in listed.out
    (shown,) = tpuctl("ls", "--json").json["nodes"]
    assert (shown["run"]["run"], shown["run"]["attempt"], shown["run"]["state"]) == ("digits-1", 1, "running")
    run.end(Verdict("digits-1", "succeeded", 1, NOW, "all ended", 0))
    assert "digits-1" not in tpuctl("ls").out, "it works no more"
    assert tpuctl("ls", "--json").json["nodes"][0]["run"]["state"] == "succeeded"


def test_no_request_is_sent_for_runs_elsewhere(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, node: str
) -> None:
    here = only_node(cloud)
    give_run(cloud, here)
    before = len(simulator.events.find(service="storage"))
    tpuctl("ls")
    alone = len(simulator.events.find(service="storage")) - before
    assert alone, "the bucket is asked"
    for number in range(20):
        give_run(cloud, replace(here, id=replace(here.id, uid=str(number + 1), name="n2")), f"other-{number}")
    before = len(simulator.events.find(service="storage"))
    tpuctl("ls")
    assert len(simulator.events.find(service="storage")) - before == alone


def test_a_silent_bucket_is_said_and_fails_nothing(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("gcs-error", status="403")
    listed = tpuctl("ls")
    assert listed.code == 0
    assert node in listed.out
    assert "Which runs work there is not known: No permission" in listed.err
    assert "No permission" in tpuctl("ls", "--json").json["runs_unknown"]


def test_ill_health_is_in_the_table(tpuctl: Tpuctl, simulator: RunningSimulator, node: str) -> None:
    symptom = {"symptomType": "OUT_OF_MEMORY", "details": "oom-killer", "workerId": "0"}
    change_node(simulator, symptoms=[symptom], healthDescription="no heartbeat")
    assert "worker 0: OUT_OF_MEMORY (oom-killer)" in tpuctl("ls").out
    (shown,) = tpuctl("ls", "--json").json["nodes"]
    assert shown["symptoms"][0]["kind"] == "OUT_OF_MEMORY"
    assert shown["health_description"] == "no heartbeat"
    assert shown["notes"] == ["worker 0: OUT_OF_MEMORY (oom-killer)"]


def test_maintenance_is_announced(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, node: str
) -> None:
    simulator.faults.add("maintenance-notice", node=node)
    while not cloud.provider.maintenance():
        pass
    assert "maintenance pending 20" in tpuctl("ls").out
    assert tpuctl("ls", "--json").json["nodes"][0]["maintenance"]["status"] == "PENDING"


def test_the_end_of_a_time_to_live_is_shown(tpuctl: Tpuctl, cloud: Cloud) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes").code == 0
    listed = tpuctl("ls")
    assert "ENDS IN" in listed.out
    assert re.search(r" [78]h\b", listed.out.splitlines()[1])
    (shown,) = tpuctl("ls", "--json").json["nodes"]
    assert shown["expires"] > shown["created"]


def test_why_a_queued_resource_waits(tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator) -> None:
    simulator.faults.add("stockout", zone=ZONE)
    queue(cloud, valid_until="2126-01-31T12:00:00Z")
    reason = "waits for capacity, until 2126-01-31T12:00:00Z at the latest"
    while reason not in tpuctl("ls").out:
        pass
    (shown,) = tpuctl("ls", "--json").json["queued_resources"]
    assert shown["notes"] in ([reason], []), "it is PROVISIONING for a moment, again and again"


def test_why_a_queued_resource_failed(tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator) -> None:
    words = "Quota limit 'TPUV3' has been exceeded. Limit: 0 in zone Z."
    simulator.faults.add(
        "failed-operation", method="CreateQueuedResource", code="RESOURCE_EXHAUSTED", message=words
    )
    queue(cloud)
    while "FAILED" not in tpuctl("ls").out:
        pass
    assert f"failed: quota: {words}" in tpuctl("ls").out
    (shown,) = tpuctl("ls", "--json").json["queued_resources"]
    assert (shown["error"], shown["error_kind"]) == (words, "quota")


def test_a_suspended_one_says_who_and_that_it_takes_quota(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator
) -> None:
    queue(cloud, node=msgspec.structs.replace(REQUEST, spot=True))
    while not cloud.provider.list_nodes().nodes or only_node(cloud).provider_state != "READY":
        pass
    simulator.call(simulator.world.preempt(f"projects/sim-project/locations/{ZONE}/nodes/n1"))
    while "SUSPENDED" not in tpuctl("ls", "--all-users").out:
        pass
    assert "suspended by the service: has lost its nodes, takes quota" in tpuctl("ls", "--all-users").out


def test_json_has_a_price_with_its_source_or_the_reason(tpuctl: Tpuctl, node: str) -> None:
    (shown,) = tpuctl("ls", "--json").json["nodes"]
    price = shown["price_per_hour"]
    assert price["amount"] is None or price["source"]
    assert price["amount"] or price["reason"]
    assert shown["bills"] is True


def test_watch_shows_each_change_as_a_line_until_ctrl_c(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str
) -> None:
    watching = commands.start("ls", "--watch", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert watching.stdout
        assert watching.stdout.readline().rstrip().endswith(f"  n1 in {ZONE}: READY")
        assert tpuctl("down", "n1", "--yes").code == 0
        lines = iter(watching.stdout.readline, "")
        assert next(line for line in lines if "gone" in line).rstrip().endswith("-> gone")
    finally:
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert "Traceback" not in errors


def test_a_bucket_without_a_folder_of_the_node_has_no_run(tpuctl: Tpuctl, bucket: Bucket, node: str) -> None:
    bucket.upload("nodes/x/runs/digits-1/1.json", [b"{}"], "application/json")
    assert "digits-1" not in tpuctl("ls").out


def test_300_nodes_with_a_keeper_are_listed_created_and_deleted(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    """One answer of 9 MB, where gRPC alone takes 4."""
    assert tpuctl("up", "v3-8", "--name", "n0", "--ttl", "8h", "--yes").code == 0
    state = simulator.world.nodes._state
    (first,) = state.nodes.all()
    assert len(first.metadata["startup-script"]) > 1 << 14, "the keeper"

    async def fill() -> None:
        for number in range(1, 300):
            state.nodes.put(
                replace(
                    first,
                    name=f"{first.name.removesuffix('0')}{number}",
                    uid=first.uid + number,
                    addresses=(f"10.200.{number // 250}.{number % 250 + 1}",),
                    create_time=first.create_time - (86400 if number == 1 else 0),
                )
            )

    simulator.call(fill())
    assert len(tpuctl("ls", "--json").json["nodes"]) == 300
    created = tpuctl("up", "v3-8", "--name", "n300", "--yes")
    assert created.code == 0, created.err
    assert tpuctl("down", "n2", "--yes").code == 0
    reaped = tpuctl("reap", "--yes", "--json")
    assert (reaped.code, reaped.json["deleted"]) == (0, ["n1"]), reaped.err
    assert len(state.nodes.all()) == 299


Capture = pytest.CaptureFixture[str]
LOOKED_AT = datetime(2026, 1, 1, 3, tzinfo=UTC)
HEADINGS = ["NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE", "OWNER"]


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_a_node_has_nine_cells_and_a_note_where_it_is_ill(capsys: Capture) -> None:
    ill = node("n2", NodeState.PREEMPTED, spot=True, labels={}, addresses=("10.0.0.1", "10.0.0.2"))
    allocation_table([Allocation((node(),)), Allocation((ill,))], LOOKED_AT)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert cells(shown.out) == [
        [*HEADINGS, "NOTE"],
        ["n1", PLAYED_ZONE, "v3-8", "1", f"its {NodeState.READY}", "no", "image-2", "3h", owner_label("ada")],
        [
            "n2", PLAYED_ZONE, "v3-8", "2", f"its {NodeState.PREEMPTED}", "yes", "image-2", "3h", "-",
            "taken back by the provider: never runs again",
        ],
    ]  # fmt: skip


def test_a_request_is_listed_until_it_is_active(capsys: Capture) -> None:
    waits, has_all = (
        Allocation((), queued_resource()),
        Allocation((node(),), queued_resource(QueueState.ACTIVE)),
    )
    allocation_table([waits, has_all], LOOKED_AT, err=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    header, request, slice_ = cells(shown.err)
    assert header[:9] == HEADINGS
    assert (request[0], slice_[0]) == ("q1", "n1")
    assert request[3] == f"its {QueueState.WAITING}", "no hosts yet"
    assert len(cells(shown.err)) == 3


def test_zones_that_did_not_answer_are_named(capsys: Capture) -> None:
    note_unlisted(Inventory((), ("us-east1-d", "us-east5-a")))
    assert capsys.readouterr().err == (
        "Warning: no answer from us-east1-d: what is there is not listed, and may bill.\n"
        "Warning: no answer from us-east5-a: what is there is not listed, and may bill.\n"
    )


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
