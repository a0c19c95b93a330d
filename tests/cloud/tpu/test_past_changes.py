"""What the API remembers of changes and announces, through Google's client against the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from tests.cloud.tpu.test_client import NODE, REQUEST, ZONE, create, named, wait
from tests.cloud.tpu.test_queued_resources import QUEUE_REQUEST
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.cloud.tpu.past_changes import list_operations, read_history
from tpuctl.errors import ConfigError, ConflictError, DeadlineError, StockoutError
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    DeleteNode,
    PastChange,
    SimulateMaintenance,
    StopNode,
)
from tpuctl.sim.faults import grpc_fault

ELSEWHERE = "us-central1-a"


def verbs(changes: tuple[PastChange, ...]) -> list[tuple[str, str]]:
    return [(change.zone, change.verb) for change in changes]


def test_a_node_that_is_gone_has_a_history(provider: CloudTpu) -> None:
    node = create(provider)
    wait(provider.begin(StopNode(node.id)))
    wait(provider.begin(DeleteNode(node.id)))
    create(provider, named("another"))
    history = provider.history("n1")
    assert verbs(history.changes) == [(ZONE, "create"), (ZONE, "stop"), (ZONE, "delete")]
    created = history.changes[0]
    assert created.node is not None
    assert (created.node.id, created.node.labels) == (node.id, node.labels)
    assert created.began.endswith("Z")
    assert created.ended >= created.began
    assert not any(change.error for change in history.changes)
    assert history == provider.history("n1", ZONE)
    assert provider.history("n1", ELSEWHERE).changes == ()


def test_a_change_that_failed_has_its_error(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add("stockout", count=1)
    with pytest.raises(StockoutError):
        wait(provider.begin(CreateNode(REQUEST)))
    (change,) = provider.history("n1").changes
    assert isinstance(change.error, StockoutError)
    assert (change.node, bool(change.ended)) == (None, True)


def test_a_change_that_runs_has_no_end(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add("stuck-operation", method="CreateNode")
    provider.begin(CreateNode(REQUEST))
    (change,) = provider.history("n1").changes
    assert (change.ended, change.error, change.node) == ("", None, None)


def test_queued_resources_have_one_too(provider: CloudTpu) -> None:
    wait(provider.begin(CreateQueuedResource(QUEUE_REQUEST)))
    (change,) = provider.history("q1").changes
    assert (change.verb, change.of_queued_resource, change.node) == ("create", True, None)


def test_nodes_of_one_name_in_two_zones_have_one_history(provider: CloudTpu) -> None:
    create(provider)
    create(provider, named("n1", ELSEWHERE))
    assert verbs(provider.history("n1").changes) == [(ZONE, "create"), (ELSEWHERE, "create")]


def test_a_silent_zone_is_named(provider: CloudTpu, simulator: RunningSimulator) -> None:
    create(provider)
    simulator.faults.add("unreachable", zone=ELSEWHERE)
    history = provider.history("n1")
    assert (verbs(history.changes), history.unreachable) == ([(ZONE, "create")], (ELSEWHERE,))


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"])
def test_where_all_zones_cannot_be_listed_at_once_each_is(
    provider: CloudTpu, simulator: RunningSimulator, code: str
) -> None:
    create(provider)
    everywhere = "projects/sim-project/locations/-"
    simulator.faults.add("error", method="ListOperations", code=code, resource=everywhere)
    simulator.faults.add("zone-denied", zone="us-east1-d")
    assert verbs(provider.history("n1").changes) == [(ZONE, "create")]


def test_an_api_that_is_off_is_an_error(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add("api-off")
    with pytest.raises(ConfigError):
        provider.history("n1")


def test_a_silent_zone_that_was_named_is_an_error(
    provider: CloudTpu, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuctl.cloud.tpu.api_requests.RETRY_TIMEOUT", 0.0)
    simulator.faults.add("unreachable", zone=ZONE)
    with pytest.raises(DeadlineError):
        provider.history("n1", ZONE)


def test_announced_maintenance_is_known_by_the_uid(provider: CloudTpu, simulator: RunningSimulator) -> None:
    node = create(provider)
    create(provider, named("calm"))
    assert provider.maintenance() == {}
    simulator.faults.add("maintenance-notice", node="n1")
    while not provider.maintenance():
        pass
    ((uid, announced),) = provider.maintenance(ZONE).items()
    assert uid == node.id.uid
    assert announced.status == "PENDING"
    assert announced.begins.endswith("Z")
    assert announced.ends > announced.begins
    assert replace(NODE, uid=uid) == node.id


def test_a_maintenance_is_simulated_on_one_host_and_asked_for_once(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    node = create(provider, msgspec.structs.replace(REQUEST, accelerator="v3-32"))
    change = SimulateMaintenance(node.id, 2)
    request = provider.http_request(change)
    assert request.method == "POST"
    place = f"projects/sim-project/locations/{ZONE}/nodes/n1"
    assert request.url == f"https://tpu.googleapis.com/v2alpha1/{place}:simulateMaintenanceEvent"
    assert request.body == {"workerIds": ["2"]}
    simulator.faults.add(grpc_fault("tpu.SimulateMaintenanceEvent", 10, "conflict", count=1))
    with pytest.raises(ConflictError, match="was changed by another client"):
        provider.begin(change)
    wait(provider.begin(change))
    ((uid, announced),) = provider.maintenance().items()
    assert uid == node.id.uid
    assert announced.status == "PENDING"


PLACE = f"projects/p/locations/{ZONE}"


class PlayedClient:
    """A service whose pages of operations are known beforehand; `requests` has what it was asked."""

    def __init__(self, *pages: operations_pb2.ListOperationsResponse) -> None:
        self._pages = list(pages)
        self.requests: list[dict[str, object]] = []

    def list_operations(self, request: dict[str, object], **_: object) -> Any:
        self.requests.append(dict(request))
        return self._pages.pop(0)


def operation(target: str, *, node: str | None = None, **fields: Any) -> operations_pb2.Operation:
    """Return the creation of a target; its response is a node called so, if any."""
    made = operations_pb2.Operation(**fields)
    made.metadata.Pack(tpu_v2.OperationMetadata.pb(tpu_v2.OperationMetadata(target=target, verb="create")))
    if node is not None:
        made.response.Pack(tpu_v2.Node.pb(tpu_v2.Node(name=node)))
    return made


def history_of(*operations: operations_pb2.Operation) -> tuple[PastChange, ...]:
    page = operations_pb2.ListOperationsResponse(operations=operations)
    return read_history(cast("Any", PlayedClient(page)), "p", None, ZONE).changes


def test_only_what_an_operation_ended_with_is_the_node_of_a_change() -> None:
    target = f"{PLACE}/nodes/n1"
    failure = {"code": 8, "message": "no"}
    changes = history_of(
        operation(target, node=target, done=True),
        operation(target, node=target),
        operation(target, done=True),
        operation(target, node="", done=True),
        operation(target, error=failure, done=True),
    )
    assert [change.node.name if change.node else None for change in changes] == ["n1", None, None, None, None]
    assert [bool(change.error) for change in changes] == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("target", "subject"),
    [("nodes/n1", f"Node 'n1' in {ZONE}"), ("queuedResources/q1", f"Queued resource 'q1' in {ZONE}")],
)
def test_the_error_of_a_change_says_what_failed(target: str, subject: str) -> None:
    (change,) = history_of(operation(f"{PLACE}/{target}", error={"code": 3, "message": "no"}, done=True))
    assert change.error
    assert change.error.message.startswith(subject)


def test_what_is_no_change_of_a_node_is_left_out() -> None:
    other = operation(f"{PLACE}/nodes/n1")
    other.metadata.type_url = "type.googleapis.com/google.cloud.tpu.v2.Other"
    broken = operation(f"{PLACE}/nodes/n1")
    broken.metadata.value = b"\xff"
    assert history_of(other, broken, operation(f"{PLACE}/disks/d1"), operations_pb2.Operation()) == ()


def test_a_node_that_cannot_be_read_leaves_the_change() -> None:
    target = f"{PLACE}/nodes/n1"
    broken = operation(target, node=target, done=True)
    broken.response.value += b"\xff"
    assert [change.node for change in history_of(broken)] == [None]


def test_every_page_is_read_and_one_silent_zone_is_an_error_unless_it_is_asked_for() -> None:
    first = operations_pb2.ListOperationsResponse(
        operations=[operation(f"{PLACE}/nodes/n1")], next_page_token="more", unreachable=[PLACE]
    )
    second = operations_pb2.ListOperationsResponse(operations=[operation(f"{PLACE}/nodes/n2")])
    client = PlayedClient(first, second)
    operations, silent = list_operations(cast("Any", client), "The operations", PLACE)
    assert (len(operations), silent) == (2, [ZONE])
    assert client.requests == [
        {"name": PLACE, "return_partial_success": False},
        {"name": PLACE, "return_partial_success": False, "page_token": "more"},
    ]


@pytest.mark.parametrize(("name", "subject"), [("n1", "The operations on 'n1'"), (None, "The operations")])
def test_a_list_that_fails_says_which(
    provider: CloudTpu,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    subject: str,
) -> None:
    monkeypatch.setattr("tpuctl.cloud.tpu.api_requests.RETRY_TIMEOUT", 0.0)
    simulator.faults.add("unreachable", zone=ZONE)
    with pytest.raises(DeadlineError) as caught:
        provider.history(name, ZONE)
    assert subject in caught.value.message
    assert ("'n1'" in caught.value.message) is (name is not None)
