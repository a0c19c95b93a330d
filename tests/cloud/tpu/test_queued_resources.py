"""Tests queued resources through the Cloud TPU API's client against the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from tests.cloud.tpu.test_client import NODE, REQUEST, ZONE, wait
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.errors import ConflictError, NotFoundError, QuotaError, StateError
from tpuctl.nodes import (
    CreateQueuedResource,
    DeleteQueuedResource,
    NodeState,
    QueuedResource,
    QueuedResourceId,
    QueuedResourceRequest,
    QueueState,
    StartNode,
    StopNode,
    UpdateNode,
)
from tpuctl.polling import Backoff, poll
from tpuctl.sim.faults import grpc_fault

QUEUED = QueuedResourceId("cloud-tpu", "sim-project", ZONE, "q1")
QUEUE_REQUEST = QueuedResourceRequest(QUEUED, REQUEST)


def in_state(provider: CloudTpu, state: QueueState) -> QueuedResource:
    """Return the queued resource once it is in a state."""

    def reached() -> QueuedResource | None:
        queued = provider.get_queued_resource(QUEUED)
        return queued if queued.state is state else None

    return poll(reached, awaiting=f"{QUEUED.name} to be {state}", timeout=60, backoff=Backoff(0.01, 0.05))


def test_it_has_what_was_requested(provider: CloudTpu) -> None:
    request = replace(
        QUEUE_REQUEST,
        node=structs.replace(REQUEST, spot=True),
        valid_until="2126-01-31T12:00:00Z",
        slices=2,
    )
    wait(provider.begin(CreateQueuedResource(request)))
    queued = in_state(provider, QueueState.ACTIVE)
    assert queued.id == QUEUED == provider.queued_resource_id(ZONE, "q1")
    assert (queued.name, queued.zone, queued.provider_state) == ("q1", ZONE, "ACTIVE")
    assert (queued.accelerator, queued.runtime, queued.spot) == ("v3-8", "tpu-ubuntu2204-base", True)
    assert (queued.managed, queued.is_owned_by("ada")) == (True, True)
    assert queued.metadata == {"ssh-keys": "ada:ssh-ed25519 AAAA ada"}
    assert (queued.valid_until, queued.error, queued.reservation) == ("2126-01-31T12:00:00Z", "", "")
    assert queued.created.endswith("Z")
    nodes = [provider.get_node(node) for node in queued.nodes]
    assert [node.name for node in nodes] == ["n1-0", "n1-1"]
    assert {node.state for node in nodes} == {NodeState.READY}


def test_they_are_listed_by_zone_and_everywhere(provider: CloudTpu, simulator: RunningSimulator) -> None:
    elsewhere = replace(QUEUED, zone="us-central1-b", name="q2")
    node = structs.replace(REQUEST, id=replace(NODE, zone="us-central1-b"))
    wait(provider.begin(CreateQueuedResource(QUEUE_REQUEST)))
    wait(provider.begin(CreateQueuedResource(QueuedResourceRequest(elsewhere, node))))
    assert {queued.id for queued in provider.list_queued_resources().queued_resources} == {QUEUED, elsewhere}
    (only,) = provider.list_queued_resources("us-central1-b").queued_resources
    assert (only.id, [made.zone for made in only.nodes]) == (elsewhere, ["us-central1-b"])
    simulator.faults.add("unreachable", zone="us-east1-d")
    assert provider.list_queued_resources().unreachable == ("us-east1-d",)


def test_without_capacity_it_waits_and_gets_its_node_later(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    stockout = simulator.faults.add("stockout", zone=ZONE)
    wait(provider.begin(CreateQueuedResource(QUEUE_REQUEST)))

    def waiting_without_node() -> QueuedResource | None:
        """Each attempt makes a node, which is deleted again for lack of capacity."""
        queued = provider.get_queued_resource(QUEUED)
        try:
            provider.get_node(NODE)
        except NotFoundError:
            return queued if queued.provider_state == "WAITING_FOR_RESOURCES" else None
        return None

    waiting = poll(waiting_without_node, awaiting="q1 to wait", timeout=60, backoff=Backoff(0.01, 0.05))
    assert waiting.state is QueueState.WAITING
    assert [node.name for node in waiting.nodes] == ["n1"], "the node that it will make"
    simulator.faults.remove(stockout.id)
    in_state(provider, QueueState.ACTIVE)
    assert provider.get_node(NODE).state is NodeState.READY


def test_a_preempted_one_is_suspended_by_the_service(provider: CloudTpu, simulator: RunningSimulator) -> None:
    wait(
        provider.begin(CreateQueuedResource(replace(QUEUE_REQUEST, node=structs.replace(REQUEST, spot=True))))
    )
    in_state(provider, QueueState.ACTIVE)
    simulator.call(simulator.world.preempt(f"projects/sim-project/locations/{ZONE}/nodes/n1"))
    suspended = in_state(provider, QueueState.SUSPENDED)
    assert (suspended.initiator, suspended.state.is_over) == ("SERVICE", True)


def test_one_that_failed_says_why(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add(grpc_fault("tpu.CreateQueuedResource", 13, "the stars are wrong", late=True))
    wait(provider.begin(CreateQueuedResource(QUEUE_REQUEST)))
    assert "the stars are wrong" in in_state(provider, QueueState.FAILED).error


def test_it_is_deleted_with_its_node_by_force_alone(provider: CloudTpu) -> None:
    wait(provider.begin(CreateQueuedResource(QUEUE_REQUEST)))
    in_state(provider, QueueState.ACTIVE)
    with pytest.raises(StateError, match="Queued resource 'q1' in europe-west4-a"):
        provider.begin(DeleteQueuedResource(QUEUED, force=False))
    wait(provider.begin(DeleteQueuedResource(QUEUED)))
    for look in (lambda: provider.get_queued_resource(QUEUED), lambda: provider.get_node(NODE)):
        with pytest.raises(NotFoundError):
            look()


def test_a_repeated_create_is_known_by_its_request_id(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    request = replace(QUEUE_REQUEST, request_id="6d2f5c2e-7a4d-4a1e-9d0e-5f3b6a8c9e10")
    simulator.faults.add(grpc_fault("tpu.CreateQueuedResource", 14, "unavailable", count=1))
    wait(provider.begin(CreateQueuedResource(request)))
    provider.begin(CreateQueuedResource(request))
    assert len(simulator.world.queued_resources.all()) == 1
    with pytest.raises(ConflictError, match="Queued resource 'q1' in europe-west4-a exists already"):
        provider.begin(CreateQueuedResource(QUEUE_REQUEST))


def test_a_quota_is_an_error_at_once(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", zone=ZONE)
    with pytest.raises(QuotaError):
        provider.begin(CreateQueuedResource(QUEUE_REQUEST))


def test_a_node_is_stopped_and_started(provider: CloudTpu) -> None:
    from tests.cloud.tpu.test_client import create

    node = create(provider)
    wait(provider.begin(StopNode(node.id)))
    assert provider.get_node(NODE).state is NodeState.STOPPED
    wait(provider.begin(StartNode(node.id)))
    assert provider.get_node(NODE).state is NodeState.READY


def test_labels_and_metadata_are_replaced_each_as_a_whole(provider: CloudTpu) -> None:
    from tests.cloud.tpu.test_client import create

    node = create(provider)
    wait(provider.begin(UpdateNode(node, labels={"team": "vision"})))
    changed = provider.get_node(NODE)
    assert (changed.labels, changed.metadata) == ({"team": "vision"}, node.metadata)
    wait(provider.begin(UpdateNode(node, labels={}, metadata={"a": "b"})))
    changed = provider.get_node(NODE)
    assert (changed.labels, changed.metadata) == ({}, {"a": "b"})
