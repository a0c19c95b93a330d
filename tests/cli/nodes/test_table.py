"""The lines and the fields of TPUs: which columns there are, what stands in them, what is said beside."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.overview.test_ls import give_run, only_node
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import parallel
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.cli.nodes.table import allocation_table, show_inventory, show_nodes, show_overview
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.overview.node_runs import RunOnNode, Workload
from tpuctl.flows.overview.views import Overview
from tpuctl.nodes import (
    Maintenance,
    Node,
    NodeId,
    NodeState,
    QueuedResource,
    QueuedResourceId,
    QueueState,
    Symptom,
)

Tpuctl = Callable[..., CommandResult]

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
PRICE = Price(Decimal("12.880"), "USD", "a price list", "2026-01-01T00:00:00Z")
PRICE_FIELDS = {
    "amount": "12.88",
    "currency": "USD",
    "source": "a price list",
    "as_of": "2026-01-01T00:00:00Z",
    "reason": "",
}
MAINTENANCE = Maintenance("SCHEDULED", "PENDING", "2026-01-03T00:00:00Z", "", can_reschedule=True)
BASIC = ["NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE", "OWNER"]


def node(state: NodeState = NodeState.READY, **fields: Any) -> Node:
    """Return a node of two hosts that is three hours old."""
    one = Node(
        id=NodeId("cloud-tpu", "p", "europe-west4-a", "n1", "u1"),
        state=state,
        provider_state=state.value,
        accelerator="v3-16",
        runtime="tf-2.17",
        created="2026-01-02T09:00:00Z",
        created_at=datetime(2026, 1, 2, 9, tzinfo=UTC).timestamp(),
        addresses=("127.77.0.1", "127.77.0.2"),
        labels={"managed-by": "tpuctl", "tpuctl-owner": "ada-1"},
    )
    return replace(one, **fields)


def queued(state: QueueState = QueueState.WAITING, **fields: Any) -> QueuedResource:
    """Return a queued resource that is two days old."""
    one = QueuedResource(
        id=QueuedResourceId("cloud-tpu", "p", "us-central2-b", "q1"),
        state=state,
        provider_state=f"{state.value}_FOR_RESOURCES",
        nodes=(NodeId("cloud-tpu", "p", "us-central2-b", "q1-0"),),
        accelerator="v4-8",
        runtime="tf-2.17-v4",
        created="2025-12-31T11:00:00Z",
        spot=True,
    )
    return replace(one, **fields)


class Prices:
    """What every TPU costs."""

    def __init__(self, price: Price) -> None:
        self._price = price

    def of(self, item: Node | QueuedResource) -> Price:
        return self._price


def session(price: Price = PRICE, *, as_json: bool = False) -> Any:
    return SimpleNamespace(as_json=as_json, time=NOW, prices=Prices(price))


class Shown:
    """What a function has printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.out, self.err = capsys.readouterr()
        self.lines = [
            [cell.strip() for cell in line.split("  ") if cell.strip()] for line in self.out.splitlines()
        ]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def overview_of(
    *items: Node | QueuedResource,
    runs: Mapping[str, RunOnNode] | None = None,
    maintenance: Mapping[str, Maintenance] | None = None,
    **unknown: Any,
) -> Overview:
    allocations = tuple(
        Allocation((item,)) if isinstance(item, Node) else Allocation((), item) for item in items
    )
    inventory = Inventory(allocations, unknown.pop("unreachable", ()))
    return Overview(
        inventory, Workload(runs or {}, unknown.pop("runs_unknown", "")), maintenance or {}, **unknown
    )


def test_a_node_is_shown_in_the_columns_that_every_table_has(capsys: pytest.CaptureFixture[str]) -> None:
    allocation_table([Allocation((node(),))], NOW)
    shown = Shown(capsys)
    assert shown.lines == [
        BASIC,
        ["n1", "europe-west4-a", "v3-16", "2", "READY", "no", "tf-2.17", "3h", "ada-1"],
    ]
    assert shown.err == ""


def test_a_table_can_be_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    allocation_table([Allocation((node(),))], NOW, err=True)
    shown = Shown(capsys)
    assert (shown.out, len(shown.err.splitlines())) == ("", 2)


def test_an_unknown_owner_is_a_dash_and_no_host_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    allocation_table([Allocation((node(addresses=(), labels={}),))], NOW)
    row = ["n1", "europe-west4-a", "v3-16", "READY", "no", "tf-2.17", "3h", "-"]
    assert Shown(capsys).lines[1] == [*row, "the provider lists no address of its host"]


def test_what_is_known_of_one_tpu_gets_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    run = RunOnNode("digits", 2, "2026-01-02T10:00:00Z", "running")
    one = node(metadata={"tpuctl-expires": "2026-01-02T17:30:00Z"}, health="UNHEALTHY_TENSORFLOW")
    show_overview(session(), overview_of(one, runs={"u1": run}, maintenance={"u1": MAINTENANCE}))
    shown = Shown(capsys)
    assert shown.lines[0] == [*BASIC, "RUN", "ENDS IN", "PRICE/H", "NOTE"]
    assert shown.lines[1][9:] == [
        "digits (running)",
        "5h",
        "12.88 USD",
        "UNHEALTHY_TENSORFLOW; maintenance pending 2026-01-03T00:00:00Z, can be rescheduled",
    ]


def test_an_end_that_has_passed_is_in_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    show_overview(session(), overview_of(node(metadata={"tpuctl-expires": "2026-01-02T12:00:00Z"})))
    shown = Shown(capsys)
    assert shown.lines[0][9:] == ["ENDS IN", "PRICE/H", "NOTE"]
    assert shown.lines[1][9:] == ["0s", "12.88 USD", "its time to live is over"]


@pytest.mark.parametrize(
    ("state", "price", "columns"),
    [
        (NodeState.READY, PRICE, ["PRICE/H"]),
        (NodeState.CREATING, PRICE, ["PRICE/H"]),
        (NodeState.STOPPED, PRICE, []),
        (NodeState.READY, unknown("nobody knows"), []),
    ],
)
def test_a_price_is_shown_of_what_bills_where_it_is_known(
    capsys: pytest.CaptureFixture[str], state: NodeState, price: Price, columns: list[str]
) -> None:
    show_inventory(session(price), Inventory((Allocation((node(state),)),)))
    assert Shown(capsys).lines[0] == [*BASIC, *columns]


def test_a_run_that_has_ended_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run = RunOnNode("digits", 2, "2026-01-02T10:00:00Z", "finished")
    show_overview(session(), overview_of(node(), runs={"u1": run}))
    assert "RUN" not in Shown(capsys).lines[0]


def test_a_queued_resource_is_shown_until_its_nodes_are_all_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting, active = queued(), queued(QueueState.ACTIVE)
    allocations = (Allocation((), waiting), Allocation((node(),), active))
    show_overview(session(), Overview(Inventory(allocations), Workload()))
    shown = Shown(capsys)
    assert shown.lines[1] == [
        "q1", "us-central2-b", "v4-8", "WAITING_FOR_RESOURCES", "yes", "tf-2.17-v4", "2d", "-",
        "waits for capacity",
    ]  # fmt: skip
    assert [line[0] for line in shown.lines[1:]] == ["q1", "n1"]


def test_what_did_not_answer_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    show_overview(
        session(), overview_of(node(), unreachable=("us-central1-b",), runs_unknown="The bucket is gone.")
    )
    assert Shown(capsys).err.splitlines() == [
        "Warning: no answer from us-central1-b: what is there is not listed, and may bill.",
        "Which runs work there is not known: The bucket is gone.",
    ]
    show_overview(session(), overview_of(node()))
    assert Shown(capsys).err == ""


def test_json_has_all_that_is_known_of_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    one = node(
        spot=True,
        health="HEALTHY",
        health_description="fine",
        symptoms=(Symptom("1", "OUT_OF_MEMORY", "", "2026-01-02T10:00:00Z"),),
        queued_resource="q1",
        metadata={"tpuctl-expires": "2026-01-02T17:30:00Z", "tpuctl-idle": "600s"},
    )
    run = RunOnNode("digits", 2, "2026-01-02T10:00:00Z", "finished")
    show_overview(session(as_json=True), overview_of(one, runs={"u1": run}, maintenance={"u1": MAINTENANCE}))
    shown = Shown(capsys)
    assert shown.err == ""
    assert shown.json == {
        "schema": 1,
        "nodes": [
            {
                "name": "n1",
                "project": "p",
                "zone": "europe-west4-a",
                "accelerator": "v3-16",
                "state": "READY",
                "uid": "u1",
                "health": "HEALTHY",
                "health_description": "fine",
                "symptoms": [
                    {"worker": "1", "kind": "OUT_OF_MEMORY", "details": "", "noticed": "2026-01-02T10:00:00Z"}
                ],
                "maintenance": {
                    "kind": "SCHEDULED",
                    "status": "PENDING",
                    "begins": "2026-01-03T00:00:00Z",
                    "ends": "",
                    "can_reschedule": True,
                },
                "notes": [
                    "worker 1: OUT_OF_MEMORY",
                    "maintenance pending 2026-01-03T00:00:00Z, can be rescheduled",
                ],
                "run": {
                    "run": "digits",
                    "attempt": 2,
                    "started": "2026-01-02T10:00:00Z",
                    "state": "finished",
                },
                "expires": "2026-01-02T17:30:00Z",
                "idle_seconds": 600,
                "bills": True,
                "price_per_hour": PRICE_FIELDS,
                "cost_so_far": PRICE_FIELDS | {"amount": "38.64"},
                "spot": True,
                "runtime": "tf-2.17",
                "created": "2026-01-02T09:00:00Z",
                "owner": "ada-1",
                "queued_resource": "q1",
                "addresses": ["127.77.0.1", "127.77.0.2"],
                "labels": {"managed-by": "tpuctl", "tpuctl-owner": "ada-1"},
            }
        ],
        "queued_resources": [],
        "unreachable": [],
        "runs_unknown": "",
        "maintenance_unknown": "",
    }


def test_json_says_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    show_overview(
        session(as_json=True),
        overview_of(
            node(created="", created_at=0.0),
            unreachable=("z",),
            runs_unknown="no bucket",
            maintenance_unknown="forbidden",
        ),
    )
    shown = Shown(capsys).json
    assert (shown["unreachable"], shown["runs_unknown"], shown["maintenance_unknown"]) == (
        ["z"], "no bucket", "forbidden",
    )  # fmt: skip
    (fields,) = shown["nodes"]
    assert (fields["run"], fields["maintenance"], fields["cost_so_far"], fields["expires"]) == (
        None, None, None, "",
    )  # fmt: skip


def test_json_has_all_that_is_known_of_a_queued_resource(capsys: pytest.CaptureFixture[str]) -> None:
    one = queued(
        QueueState.FAILED,
        initiator="SERVICE",
        error="no more capacity",
        error_kind="stockout",
        reservation="r1",
        valid_until="2026-02-01T00:00:00Z",
        metadata={"tpuctl-idle": "60s", "tpuctl-owner": "ada@example.com"},
        labels={"a": "b"},
    )
    show_overview(session(as_json=True), overview_of(one))
    (fields,) = Shown(capsys).json["queued_resources"]
    assert fields == {
        "name": "q1",
        "project": "p",
        "zone": "us-central2-b",
        "nodes": ["q1-0"],
        "accelerator": "v4-8",
        "state": "FAILED_FOR_RESOURCES",
        "initiator": "SERVICE",
        "error": "no more capacity",
        "error_kind": "stockout",
        "notes": ["failed: stockout: no more capacity"],
        "expires": "",
        "idle_seconds": 60,
        "price_per_hour": PRICE_FIELDS,
        "spot": True,
        "reservation": "r1",
        "runtime": "tf-2.17-v4",
        "created": "2025-12-31T11:00:00Z",
        "valid_until": "2026-02-01T00:00:00Z",
        "owner": "ada@example.com",
        "labels": {"a": "b"},
    }


def test_nodes_alone_are_shown_each_as_a_tpu(capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(node(), id=replace(node().id, name="n2", uid="u2"))
    show_nodes(session(), [node(), other])
    assert [line[0] for line in Shown(capsys).lines] == ["NAME", "n1", "n2"]


@pytest.mark.parametrize("words", [("down",), ("stop", "n1")])
def test_the_question_says_what_runs_and_what_is_saved(
    tpuctl: Tpuctl, cloud: Cloud, node: str, words: tuple[str, ...]
) -> None:
    asked = tpuctl(*words)
    assert (asked.code, "none" in asked.err.split()) == (10, True), asked.err
    run = give_run(cloud, only_node(cloud))
    assert "digits-1 (running " in tpuctl(*words).err
    for name in ("ckpt-12.index", "ckpt-12.data-00000-of-00001", "checkpoint"):
        text = b'model_checkpoint_path: "ckpt-12"\nall_model_checkpoint_paths: "ckpt-12"\n'
        cloud.bucket.upload(f"{run.paths.checkpoints}{name}", [text], "text/plain")
    asked = tpuctl(*words)
    assert (asked.code, ", ckpt-12)" in asked.err) == (10, True), asked.err


@pytest.mark.parametrize("fault", ["gcs-stall", "gcs-error"])
def test_a_bucket_that_does_not_say_what_runs_delays_nothing(
    tpuctl: Tpuctl, cloud: Cloud, simulator: RunningSimulator, node: str, fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(parallel, "PATIENCE", 0.2)
    give_run(cloud, only_node(cloud))
    simulator.faults.add(
        fault, method="storage.objects.list", **({"status": 403} if "error" in fault else {})
    )
    try:
        result = tpuctl("down", "--yes")
    finally:
        simulator.faults.clear()  # and what is left of the look ends
    for thread in threading.enumerate():
        if thread.name == "within":
            thread.join(60)
    assert result.code == 0, result.err
    assert "which runs this ends is not known" in result.err
    assert "?" in result.err.split()
    assert simulator.world.nodes.all() == []
