"""Capacity, quotas and reservations, through the official client.

Requests for flex-start: https://cloud.google.com/tpu/docs/request-using-flex-start.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.protobuf import json_format

from tests.sim.tpu.api import POLLING, Api
from tpuctl import accelerators
from tpuctl.sim.tpu.http_rules import check
from tpuctl.sim.world import ApiError, Reservation
from tpuctl.sim.world.capacity.capacity import QUOTAS, Demand, quotas_of

ZONE = "europe-west4-a"
PARENT = f"projects/rehearsal/locations/{ZONE}"
NODE = f"{PARENT}/nodes/one"


def begin(client: tpu_v2.TpuClient, node_id: str = "one", accelerator: str = "v3-8", **fields: Any) -> Any:
    node = tpu_v2.Node(accelerator_type=accelerator, runtime_version="tpu-ubuntu2204-base", **fields)
    return client.create_node(parent=PARENT, node_id=node_id, node=node)


async def hold_hosts(api: Api) -> None:
    api.hosts.hold = asyncio.Event()


async def release_hosts(api: Api) -> None:
    api.hosts.hold.set()


def create(client: tpu_v2.TpuClient, *arguments: str, **fields: Any) -> tpu_v2.Node:
    return begin(client, *arguments, **fields).result(polling=POLLING)


def test_a_node_without_capacity_is_created_and_deleted_again(client: tpu_v2.TpuClient, api: Api) -> None:
    api.world.capacity.limits[ZONE, "v3-8"] = 1
    create(client)
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity in the zone"):
        create(client, "two")
    assert [event.what for event in api.world.events if event.resource.endswith("two")][-1] == "DELETED"
    create(client, "pod", "v3-32")
    client.delete_node(name=NODE).result(polling=POLLING)
    create(client, "two")


def test_a_stopped_node_frees_its_capacity_and_may_not_start_again(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    api.world.capacity.limits[ZONE, "v3-8"] = 1
    create(client)
    client.stop_node(request={"name": NODE}).result(polling=POLLING)
    create(client, "two")
    with pytest.raises(exceptions.ResourceExhausted):
        client.start_node(request={"name": NODE}).result(polling=POLLING)
    assert client.get_node(name=NODE).state == tpu_v2.Node.State.STOPPED


def test_a_preempted_node_uses_no_capacity_while_it_is_deleted(client: tpu_v2.TpuClient, api: Api) -> None:
    api.world.capacity.limits[ZONE, "v3-8"] = 1
    create(client)
    api.run(api.world.preempt(NODE))
    create(client, "two")
    api.run(hold_hosts(api))
    deletion = client.delete_node(name=NODE)
    assert client.get_node(name=NODE).state == tpu_v2.Node.State.DELETING
    assert api.world.capacity.used(ZONE, "v3-8") == 1
    api.run(release_hosts(api))
    deletion.result(polling=POLLING)


def test_a_quota_counts_cores_and_fails_the_call(client: tpu_v2.TpuClient, api: Api) -> None:
    quota = ("rehearsal", ZONE, "TPUV3sPodPerProjectPerZoneForTPUAPI")
    api.world.capacity.quotas.limits[quota] = 64
    create(client, "one", "v3-32")
    create(client, "single", "v3-8")
    assert api.world.capacity.quotas.used(quota) == 32
    with pytest.raises(exceptions.TooManyRequests, match="Limit: 64 in zone europe-west4-a") as raised:
        begin(client, "two", "v3-64")
    (detail,) = raised.value.details
    failure = detail if isinstance(detail, dict) else json_format.MessageToDict(detail)
    assert "TPUV3sPodPerProjectPerZoneForTPUAPI" in failure["violations"][0]["description"]
    assert failure["violations"][0]["subject"].startswith("project:")
    create(client, "two", "v3-32")


def test_quotas_of_zone_and_region_are_named_together(client: tpu_v2.TpuClient, api: Api) -> None:
    for place, scope in ((ZONE, "Zone"), ("europe-west4", "Region")):
        api.world.capacity.quotas.limits["rehearsal", place, f"TPUV3sPerProjectPer{scope}ForTPUAPI"] = 0
    with pytest.raises(exceptions.TooManyRequests) as raised:
        begin(client)
    assert "Limit: 0,0 in zone europe-west4-a,region europe-west4" in raised.value.message
    (detail,) = raised.value.details
    failure = detail if isinstance(detail, dict) else json_format.MessageToDict(detail)
    assert len(failure["violations"]) == 2


def test_spot_nodes_have_a_quota_of_their_own(client: tpu_v2.TpuClient, api: Api) -> None:
    api.world.capacity.quotas.limits["rehearsal", ZONE, "TPUV3sPreemptiblePerProjectPerZoneForTPUAPI"] = 0
    create(client)
    for tier in ({"spot": True}, {"preemptible": True}):
        with pytest.raises(exceptions.TooManyRequests, match="Preemptible"):
            begin(client, "two", scheduling_config=tier)


def test_a_suspended_queued_resource_keeps_its_quota_until_it_is_deleted(
    grpc_client: tpu_v2.TpuClient, api: Api
) -> None:
    quota = ("rehearsal", ZONE, "TPUV3sPreemptiblePerProjectPerZoneForTPUAPI")
    api.world.capacity.quotas.limits[quota] = 8
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    spec = {"parent": PARENT, "node_id": "one", "node": node}
    queued = tpu_v2.QueuedResource(tpu={"node_spec": [spec]}, spot={})
    request = {"parent": PARENT, "queued_resource_id": "q", "queued_resource": queued}
    grpc_client.create_queued_resource(request=request).result(polling=POLLING)
    name = f"{PARENT}/queuedResources/q"
    another = tpu_v2.QueuedResource(tpu={"node_spec": [{**spec, "node_id": "two"}]}, spot={})
    more = {"parent": PARENT, "queued_resource_id": "more", "queued_resource": another}
    with pytest.raises(exceptions.TooManyRequests):
        grpc_client.create_queued_resource(request=more)
    api.until(lambda: api.world.queued_resources.get(name).state == "ACTIVE")
    assert api.world.capacity.quotas.used(quota) == 8  # not twice, though there is a node
    api.run(api.world.preempt(NODE))
    api.until(lambda: api.world.queued_resources.get(name).state == "SUSPENDED")
    grpc_client.delete_node(name=NODE).result(polling=POLLING)
    assert api.world.capacity.quotas.used(quota) == 8
    with pytest.raises(exceptions.TooManyRequests):
        begin(grpc_client, "two", scheduling_config={"spot": True})
    grpc_client.delete_queued_resource(name=name).result(polling=POLLING)
    assert api.world.capacity.quotas.used(quota) == 0
    create(grpc_client, "two", scheduling_config={"spot": True})


def test_a_reserved_node_needs_a_reservation_with_capacity(client: tpu_v2.TpuClient, api: Api) -> None:
    reserved = {"reserved": True}
    with pytest.raises(exceptions.NotFound, match="Reservation not found"):
        create(client, scheduling_config=reserved)
    name = f"{PARENT}/reservations/r"
    api.world.capacity.reservations.add(Reservation(name, "v3-8", 8))
    create(client, scheduling_config=reserved)
    with pytest.raises(exceptions.FailedPrecondition, match="Insufficient reserved capacity"):
        create(client, "two", scheduling_config=reserved)
    api.world.capacity.limits[ZONE, "v3-8"] = 1
    create(client, "three")  # reserved nodes leave the others' room alone


def test_a_node_that_starts_again_needs_room_in_its_own_reservation(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    reserved = {"reserved": True}
    api.world.capacity.reservations.add(Reservation(f"{PARENT}/reservations/r", "v3-8", 8))
    create(client, scheduling_config=reserved)
    client.stop_node(request={"name": NODE}).result(polling=POLLING)
    create(client, "two", scheduling_config=reserved)
    api.world.capacity.reservations.add(Reservation(f"{PARENT}/reservations/other", "v3-8", 8))
    with pytest.raises(exceptions.FailedPrecondition, match="Insufficient reserved capacity"):
        client.start_node(request={"name": NODE}).result(polling=POLLING)
    client.delete_node(name=f"{PARENT}/nodes/two").result(polling=POLLING)
    client.start_node(request={"name": NODE}).result(polling=POLLING)
    used = {
        name: api.world.capacity.reservations.used(f"{PARENT}/reservations/{name}") for name in ("r", "other")
    }
    assert used == {"r": 8, "other": 0}


def test_every_type_of_the_catalogue_has_its_quotas() -> None:
    for accelerator in accelerators.catalogue().values():
        assert (accelerator.generation, accelerator.hosts > 1) in QUOTAS
    slices = Demand(f"projects/p/locations/{ZONE}", "v5litepod-16", 2, preemptible=True)
    assert slices.units == 32  # chips
    assert quotas_of(slices) == [
        ("p", ZONE, "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI"),
        ("p", "europe-west4", "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI"),
    ]


def test_a_node_that_is_deleted_while_its_create_fails_uses_no_capacity(
    api: Api, grpc_client: tpu_v2.TpuClient
) -> None:
    """A stockout is known at once and told later: a delete in between must not count the node."""
    api.world.capacity.limits[ZONE, "v3-8"] = 0
    stuck = api.faults.add("stuck-operation", method="*Node")
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    grpc_client.create_node(parent=PARENT, node_id="one", node=node)
    assert api.world.capacity.used(ZONE, "v3-8") == 0
    grpc_client.delete_node(name=NODE)
    assert api.world.nodes.all()[0].state == "DELETING"
    assert api.world.capacity.used(ZONE, "v3-8") == 0
    api.faults.remove(stuck.id)


QUEUED = "CreateQueuedResource"
WEEK = 7 * 24 * 3600


def request(duration: object = "3600s", kind: str = "v5litepod-4", **fields: Any) -> dict[str, Any]:
    return {
        "provisioningModel": "FLEX_START",
        "runDuration": {"maxRunDuration": duration},
        "tpu": {"nodeSpec": [{"node": {"acceleratorType": kind}}]},
        **fields,
    }


def refusal(method: str, sent: dict[str, Any]) -> str:
    """Return the reason in the error; empty if there is none."""
    try:
        check(method, sent)
    except ApiError as error:
        code, message = int(error.status.code), error.status.message
        return (
            message.removeprefix("Cloud TPU received a bad request. ").partition(" [EID")[0]
            if code == 3
            else "?"
        )
    return ""


@pytest.mark.parametrize("kind", ["v5litepod-1", "v5litepod-256", "v6e-8"])
@pytest.mark.parametrize("duration", ["1s", "0.5s", "3600s", f"{WEEK}s"])
def test_a_run_of_up_to_a_week_is_accepted(kind: str, duration: str) -> None:
    assert refusal(QUEUED, request(duration, kind)) == ""


@pytest.mark.parametrize("duration", ["0s", "-1s", f"{WEEK + 1}s", "", None, "soon", 0])
def test_a_run_has_an_end_within_a_week(duration: object) -> None:
    reason = "run_duration.max_run_duration must be more than 0s and at most 604800s for FLEX_START"
    assert refusal(QUEUED, request(duration)) == reason
    assert refusal(QUEUED, request(runDuration=5)) == reason


@pytest.mark.parametrize("tier", ["spot", "guaranteed", "bestEffort", "reservationName"])
def test_no_other_tier_can_be_asked_for(tier: str) -> None:
    assert refusal(QUEUED, request(**{tier: {}})) == f"FLEX_START cannot be combined with {tier}"


@pytest.mark.parametrize("kind", ["v2-8", "v3-8", "v4-8", "v5p-8", "v9-8", ""])
def test_it_is_for_v5e_and_v6e_alone(kind: str) -> None:
    assert refusal(QUEUED, request(kind=kind)) == f"FLEX_START is not available for {kind}"
    second = {"nodeSpec": [{"node": {"acceleratorType": "v6e-8"}}, {"node": {"acceleratorType": kind}}]}
    assert refusal(QUEUED, request(tpu=second)) == f"FLEX_START is not available for {kind}"


def test_a_specification_of_another_shape_is_left_to_the_other_checks() -> None:
    assert refusal(QUEUED, request(tpu={"nodeSpec": {}})) == ""
    assert refusal(QUEUED, request(tpu={"nodeSpec": [5]})) == "FLEX_START is not available for "


def test_a_node_is_only_queued_for_it() -> None:
    sent = {"schedulingConfig": {"provisioningModel": "FLEX_START"}}
    assert refusal("CreateNode", sent) == "FLEX_START is only available through queued resources"
    assert refusal("UpdateNode", sent) == ""


def test_requests_of_other_models_are_left_alone() -> None:
    bad = request("0s", "v2-8", spot={}, provisioningModel="SPOT")
    assert refusal(QUEUED, bad) == ""
    assert refusal("CreateNode", request("0s")) == ""
    assert refusal("CreateNode", {"schedulingConfig": {"provisioningModel": "SPOT"}}) == ""
