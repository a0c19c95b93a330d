"""Queued resources through the official client, over gRPC and over REST."""

from __future__ import annotations

import time as clock
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

from tests.sim.tpu.api import POLLING, Api
from tpuctl.sim.faults import grpc_fault
from tpuctl.sim.world import Reservation
from tpuctl.sim.world.api_errors import Status
from tpuctl.sim.world.queue import Provisioning
from tpuctl.sim.world.resources import QueuedResource

PARENT = "projects/rehearsal/locations/europe-west4-a"
NAME = f"{PARENT}/queuedResources/q"
NODE = f"{PARENT}/nodes/one"
STATES = tpu_v2.QueuedResourceState.State
USER = tpu_v2.QueuedResourceState.StateInitiator.USER
SERVICE = tpu_v2.QueuedResourceState.StateInitiator.SERVICE


def queued_resource_message(
    node_id: str = "one", accelerator: str = "v3-8", **fields: Any
) -> tpu_v2.QueuedResource:
    node = tpu_v2.Node(accelerator_type=accelerator, runtime_version="tpu-ubuntu2204-base")
    several = fields.pop("multislice_params", None)
    name = {"multislice_params": several} if several else {"node_id": node_id}
    return tpu_v2.QueuedResource(tpu={"node_spec": [{"parent": PARENT, "node": node, **name}]}, **fields)


def create(client: tpu_v2.TpuClient, identifier: str = "q", **fields: Any) -> tpu_v2.QueuedResource:
    operation = client.create_queued_resource(
        parent=PARENT, queued_resource_id=identifier, queued_resource=queued_resource_message(**fields)
    )
    return operation.result(polling=POLLING)


def settled(client: tpu_v2.TpuClient, *states: str, name: str = NAME) -> tpu_v2.QueuedResource:
    """The queued resource, once it is in one of these states."""
    until = clock.monotonic() + 60
    queued = client.get_queued_resource(name=name)
    while STATES(queued.state.state).name not in states:
        assert clock.monotonic() < until, f"{name} stays {STATES(queued.state.state).name}"
        clock.sleep(0.002)
        queued = client.get_queued_resource(name=name)
    return queued


def transitions(api: Api, name: str = NAME) -> list[str]:
    return [event.what for event in api.world.events.find(kind="transition", resource=name)]


def delete(client: tpu_v2.TpuClient, *, force: bool, name: str = NAME) -> Any:
    return client.delete_queued_resource(request={"name": name, "force": force}).result(polling=POLLING)


def test_a_queued_resource_passes_its_states_and_its_node_says_whose_it_is(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    accepted = create(client, spot={})
    assert accepted.state.state == STATES.ACCEPTED
    active = settled(client, "ACTIVE")
    assert transitions(api) == ["CREATING", "ACCEPTED", "PROVISIONING", "ACTIVE"]
    assert (active.name, "spot" in active, "active_data" in active.state) == (NAME, True, True)
    assert active.tpu.node_spec[0].node_id == "one"
    assert active.tpu.node_spec[0].node.accelerator_type == "v3-8"
    node = client.get_node(name=NODE)
    assert (node.state, node.queued_resource) == (tpu_v2.Node.State.READY, NAME)
    assert node.scheduling_config.spot
    assert not node.multislice_node


def test_several_slices_are_named_by_their_prefix_or_by_the_queued_resource(client: tpu_v2.TpuClient) -> None:
    create(client, multislice_params={"node_count": 3, "node_id_prefix": "np"})
    create(client, "other", multislice_params={"node_count": 2})
    settled(client, "ACTIVE")
    settled(client, "ACTIVE", name=f"{PARENT}/queuedResources/other")
    nodes = {node.name.rpartition("/")[2]: node for node in client.list_nodes(parent=PARENT)}
    assert set(nodes) == {"np-0", "np-1", "np-2", "other-0", "other-1"}
    assert all(node.multislice_node for node in nodes.values())


def test_they_are_listed_in_pages_over_one_zone_or_all(client: tpu_v2.TpuClient) -> None:
    for number in range(3):
        create(client, f"q{number}", node_id=f"n{number}")
    pages = client.list_queued_resources(request={"parent": PARENT, "page_size": 2}).pages
    listed = [[queued.name[-2:] for queued in page.queued_resources] for page in pages]
    assert listed == [["q0", "q1"], ["q2"]]
    everywhere = client.list_queued_resources(parent="projects/rehearsal/locations/-")
    assert len(list(everywhere)) == 3
    assert not list(client.list_queued_resources(parent="projects/rehearsal/locations/us-central1-a"))


def test_the_same_request_sent_again_is_the_same_operation(client: tpu_v2.TpuClient, api: Api) -> None:
    request = {
        "parent": PARENT,
        "queued_resource_id": "q",
        "queued_resource": queued_resource_message(),
        "request_id": "3f0a1e0e-55a5-4f6d-9f3e-6a2a1a3f9f10",
    }
    first = client.create_queued_resource(request=request)
    settled(client, "ACTIVE")
    again = client.create_queued_resource(request=request)
    assert again.operation.name == first.operation.name
    with pytest.raises(exceptions.Conflict):
        client.create_queued_resource(request={**request, "request_id": "another"})
    deletion = {"name": NAME, "force": True, "request_id": "delete-1"}
    deleting = client.delete_queued_resource(request=deletion)
    deleting.result(polling=POLLING)
    assert client.delete_queued_resource(request=deletion).operation.name == deleting.operation.name
    assert api.world.idle()


def test_a_delete_needs_force_while_there_are_nodes(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client)
    settled(client, "ACTIVE")
    with pytest.raises((exceptions.FailedPrecondition, exceptions.BadRequest), match="set force") as raised:
        delete(client, force=False)
    assert raised.value.code == 400
    delete(client, force=True)
    assert api.world.idle()
    with pytest.raises(exceptions.NotFound):
        client.get_queued_resource(name=NAME)
    assert transitions(api, NODE)[-2:] == ["DELETING", "DELETED"]
    assert transitions(api)[-2:] == ["DELETING", "DELETED"]


def test_it_outlives_its_node_which_the_user_deleted(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client)
    settled(client, "ACTIVE")
    client.delete_node(name=NODE).result(polling=POLLING)
    suspended = settled(client, "SUSPENDED")
    assert suspended.state.state_initiator == USER
    assert transitions(api)[-2:] == ["SUSPENDING", "SUSPENDED"]
    delete(client, force=False)
    assert api.world.idle()


def test_a_preempted_node_suspends_it_and_stays_until_it_is_deleted(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    create(client, spot={})
    settled(client, "ACTIVE")
    api.run(api.world.preempt(NODE))
    assert settled(client, "SUSPENDED").state.state_initiator == SERVICE
    assert client.get_node(name=NODE).state == tpu_v2.Node.State.PREEMPTED
    delete(client, force=True)
    assert api.world.idle()


def test_one_preempted_slice_takes_the_others_with_it(grpc_client: tpu_v2.TpuClient, api: Api) -> None:
    create(grpc_client, multislice_params={"node_count": 2}, spot={})
    settled(grpc_client, "ACTIVE")
    api.run(api.world.preempt(f"{PARENT}/nodes/q-1"))
    settled(grpc_client, "SUSPENDED")
    (remaining,) = grpc_client.list_nodes(parent=PARENT)
    assert (remaining.name[-3:], remaining.state) == ("q-1", tpu_v2.Node.State.PREEMPTED)


def test_a_reset_queues_it_anew(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client, spot={})
    first = client.get_node(name=settled(client, "ACTIVE") and NODE)
    api.run(api.world.preempt(NODE))
    settled(client, "SUSPENDED")
    reset = client.reset_queued_resource(request={"name": NAME}).result(polling=POLLING)
    assert reset.state.state == STATES.ACCEPTED
    settled(client, "ACTIVE")
    assert client.get_node(name=NODE).id != first.id


def test_a_request_that_is_being_provisioned_cannot_be_reset(grpc_client: tpu_v2.TpuClient, api: Api) -> None:
    api.world.capacity.limits["europe-west4-a", "v3-8"] = 0
    create(grpc_client)
    settled(grpc_client, "WAITING_FOR_RESOURCES")
    with pytest.raises(exceptions.FailedPrecondition, match="reset is not supported"):
        grpc_client.reset_queued_resource(request={"name": NAME})
    delete(grpc_client, force=False)


def test_it_waits_for_capacity_and_is_provisioned_when_there_is_some(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    api.world.capacity.limits["europe-west4-a", "v3-8"] = 1
    create(client)
    settled(client, "ACTIVE")
    create(client, "later", node_id="two")
    later = f"{PARENT}/queuedResources/later"
    settled(client, "WAITING_FOR_RESOURCES", name=later)
    delete(client, force=True)
    settled(client, "ACTIVE", name=later)
    assert transitions(api, later) == [
        "CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE",
    ]  # fmt: skip


def test_provisioning_falls_back_to_waiting_when_a_node_has_no_capacity(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    api.faults.add(grpc_fault("tpu.CreateNode", 8, "no more capacity", "*/q-1", late=True, count=1))
    create(client, multislice_params={"node_count": 2})
    settled(client, "ACTIVE")
    assert transitions(api)[2:] == ["PROVISIONING", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    first = transitions(api, f"{PARENT}/nodes/q-0")
    assert first.count("DELETED") == 1
    assert first[-1] == "READY"


def test_a_node_that_fails_for_another_reason_fails_the_request(client: tpu_v2.TpuClient, api: Api) -> None:
    api.faults.add(grpc_fault("tpu.CreateNode", 13, "the disk broke", late=True, count=1))
    create(client)
    failed = settled(client, "FAILED")
    assert (failed.state.failed_data.error.code, failed.state.failed_data.error.message) == (
        13,
        "the disk broke",
    )
    assert not list(client.list_nodes(parent=PARENT))
    delete(client, force=False)


def test_a_slice_that_is_preempted_while_another_one_fails_suspends_the_request(
    client: tpu_v2.TpuClient, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost stays listed until it is deleted, also if both are seen in one look."""
    look, failures = Provisioning._node_failure, list[Status]()

    def look_as_one_is_lost(self: Provisioning, queued: QueuedResource) -> Status | None:
        failure = look(self, queued)
        failures.extend([failure] if failure else [])
        return failure

    monkeypatch.setattr(Provisioning, "_node_failure", look_as_one_is_lost)
    monkeypatch.setattr(Provisioning, "_lost", lambda self, nodes: bool(failures))
    api.faults.add(grpc_fault("tpu.CreateNode", 8, "no more capacity", "*/q-1", late=True, count=1))
    create(client, multislice_params={"node_count": 2}, spot={})
    settled(client, "SUSPENDED")
    assert failures
    assert "WAITING_FOR_RESOURCES" not in transitions(api)


def test_a_late_failure_is_shown_once_it_was_accepted(client: tpu_v2.TpuClient, api: Api) -> None:
    api.faults.add(grpc_fault("tpu.CreateQueuedResource", 9, "not eligible", late=True, count=1))
    assert create(client).state.state == STATES.ACCEPTED
    failed = settled(client, "FAILED")
    assert failed.state.failed_data.error.message == "not eligible"
    assert [event.what for event in api.world.events.find(kind="fault")] == ["failed-operation"]


def test_a_name_that_is_taken_conflicts_at_once_or_when_its_turn_comes(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    create(client)
    settled(client, "ACTIVE")
    for identifier, node_id in (("q", "two"), ("other", "one")):
        with pytest.raises(exceptions.Conflict, match="already exists"):
            create(client, identifier, node_id=node_id)
    api.world.capacity.limits["europe-west4-a", "v3-8"] = 0
    create(client, "late", node_id="two")
    late = f"{PARENT}/queuedResources/late"
    settled(client, "WAITING_FOR_RESOURCES", name=late)
    other = tpu_v2.Node(accelerator_type="v2-8", runtime_version="tpu-ubuntu2204-base")
    client.create_node(parent=PARENT, node_id="two", node=other)  # of which there are enough
    api.world.capacity.limits.clear()
    assert settled(client, "FAILED", name=late).name == late


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"identifier": "no spaces"}, "Invalid queued resource ID"),
        ({"accelerator": "v3-9"}, "v3-9 was not found in zone"),
        ({"multislice_params": {"node_count": 1}}, "node_count must be greater than 1"),
        ({"multislice_params": {"node_count": 2, "node_id_prefix": "a b"}}, "Invalid node ID"),
        ({"multislice_params": {"node_count": 9999}}, "nodes at most"),
        ({"node_id": ""}, "node_id or the parameters"),
        ({"queueing_policy": {"valid_until_time": "2001-01-01T00:00:00Z"}}, "leaves no time"),
    ],
)
def test_a_request_that_cannot_be_is_refused_and_nothing_is_queued(
    grpc_client: tpu_v2.TpuClient, api: Api, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=text):
        create(grpc_client, **fields)
    assert api.world.idle()


def test_nodes_must_be_requested_in_the_zone_of_the_request(grpc_client: tpu_v2.TpuClient) -> None:
    elsewhere = queued_resource_message()
    elsewhere.tpu.node_spec[0].parent = "projects/rehearsal/locations/us-central1-a"
    for wrong, text in ((elsewhere, "parent must be"), (tpu_v2.QueuedResource(), "must have a node_spec")):
        with pytest.raises(exceptions.InvalidArgument, match=text):
            grpc_client.create_queued_resource(parent=PARENT, queued_resource_id="q", queued_resource=wrong)


def test_what_is_not_there_is_not_found(client: tpu_v2.TpuClient) -> None:
    for call in (
        lambda: client.get_queued_resource(name=NAME),
        lambda: client.delete_queued_resource(name=NAME),
        lambda: client.reset_queued_resource(request={"name": NAME}),
    ):
        with pytest.raises(exceptions.NotFound, match="was not found"):
            call()


def test_a_reserved_request_uses_its_reservation_and_waits_when_that_is_used_up(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    name = f"{PARENT}/reservations/r"
    api.world.capacity.reservations.add(Reservation(name, "v3-8", 8))
    create(client, reservation_name=f"{PARENT}/reservations/-", guaranteed={})
    settled(client, "ACTIVE")
    assert client.get_node(name=NODE).scheduling_config.reserved
    assert api.world.capacity.reservations.used(name) == 8
    create(client, "more", node_id="two", reservation_name=name)
    settled(client, "WAITING_FOR_RESOURCES", name=f"{PARENT}/queuedResources/more")
    create(client, "none", node_id="three", reservation_name=f"{PARENT}/reservations/none")
    failed = settled(client, "FAILED", name=f"{PARENT}/queuedResources/none")
    assert failed.state.failed_data.error.message == "Reservation not found"


def test_slices_of_one_request_know_each_other(grpc_client: tpu_v2.TpuClient, api: Api) -> None:
    create(grpc_client, multislice_params={"node_count": 2})
    settled(grpc_client, "ACTIVE")
    nodes = sorted(api.world.nodes.all(), key=lambda node: node.name)
    assert {node.slices for node in nodes} == {tuple(node.addresses[0] for node in nodes)}
    assert all(host.slices == node.slices for node in nodes for host in node.hosts())


def test_a_single_node_knows_no_slices(grpc_client: tpu_v2.TpuClient, api: Api) -> None:
    create(grpc_client)
    settled(grpc_client, "ACTIVE")
    assert [node.slices for node in api.world.nodes.all()] == [()]


def test_what_a_node_of_a_queued_resource_says_of_its_scheduling_stays(client: tpu_v2.TpuClient) -> None:
    queued = queued_resource_message(spot={})
    queued.tpu.node_spec[0].node.scheduling_config = tpu_v2.SchedulingConfig(preemptible=True)
    client.create_queued_resource(parent=PARENT, queued_resource_id="q", queued_resource=queued).result(
        polling=POLLING
    )
    settled(client, "ACTIVE")
    scheduling = client.get_node(name=NODE).scheduling_config
    assert (scheduling.preemptible, scheduling.spot) == (True, True)
