"""What the API remembers of changes and announces, through Google's client against the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cloud.tpu.test_client import NODE, REQUEST, ZONE, create, named, wait
from tests.cloud.tpu.test_queued_resources import QUEUE_REQUEST
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.errors import ConfigError, DeadlineError, StockoutError
from tpuctl.nodes import CreateNode, CreateQueuedResource, DeleteNode, PastChange, StopNode

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
    monkeypatch.setattr("tpuctl.cloud.tpu.sending.RETRY_TIMEOUT", 0.0)
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
