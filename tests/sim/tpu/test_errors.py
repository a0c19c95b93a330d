"""Each error of the API, as the official client raises it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.protobuf import json_format

from tests.sim.tpu.api import POLLING, Api
from tpuctl.sim.faults import grpc_fault

PARENT = "projects/rehearsal/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
RUNTIME = "tpu-ubuntu2204-base"


def begin(client: tpu_v2.TpuClient, node_id: str = "one", parent: str = PARENT, **fields: Any) -> Any:
    node = tpu_v2.Node(**{"accelerator_type": "v3-8", "runtime_version": RUNTIME, **fields})
    return client.create_node(parent=parent, node_id=node_id, node=node)


def create(client: tpu_v2.TpuClient, **fields: Any) -> tpu_v2.Node:
    return begin(client, **fields).result(polling=POLLING)


def test_an_unknown_zone_looks_like_a_missing_permission(client: tpu_v2.TpuClient) -> None:
    with pytest.raises(exceptions.Forbidden) as raised:
        begin(client, parent="projects/rehearsal/locations/mars-north1-a")
    assert "Location mars-north1-a is not found or access is unauthorized." in raised.value.message
    assert raised.value.reason == "LOCATION_POLICY_VIOLATED"
    assert raised.value.domain == "googleapis.com"
    assert raised.value.metadata == {
        "consumer": "projects/rehearsal",
        "location": "mars-north1-a",
        "service": "tpu.googleapis.com",
    }


def test_every_call_fails_in_a_project_without_the_api(client: tpu_v2.TpuClient, api: Api) -> None:
    api.world.disabled_projects.add("rehearsal")
    with pytest.raises(exceptions.Forbidden) as raised:
        client.list_nodes(parent=PARENT)
    assert raised.value.reason == "SERVICE_DISABLED"
    assert "apis/api/tpu.googleapis.com/overview?project=rehearsal" in raised.value.message


@pytest.mark.parametrize("accelerator", ["v3-9", "v6e-8", "tesla-v100"])
def test_a_type_that_the_zone_lacks_is_a_bad_request(client: tpu_v2.TpuClient, accelerator: str) -> None:
    parent = "projects/rehearsal/locations/us-central1-f"
    with pytest.raises(exceptions.BadRequest, match=f"{accelerator} was not found in zone us-central1-f"):
        begin(client, parent=parent, accelerator_type=accelerator)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"runtime_version": "tpu-vm-tf-1.0.0"}, 'RuntimeVersion" cannot be "tpu-vm-tf-1.0.0"'),
        ({"runtime_version": ""}, "RuntimeVersion"),
        ({"description": "x" * 513}, "512 characters"),
        ({"network_config": {"network": "a"}, "network_configs": [{"network": "b"}]}, "mutually exclusive"),
        ({"node_id": "no spaces"}, "Invalid node ID"),
        ({"node_id": ""}, "Invalid node ID"),
        ({"accelerator_type": "", "accelerator_config": {"type_": "V6E", "topology": "9x9"}}, "V6E 9x9"),
    ],
)
def test_a_node_that_cannot_be_is_refused_and_nothing_is_created(
    grpc_client: tpu_v2.TpuClient, api: Api, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=text):
        begin(grpc_client, **fields)
    assert api.world.idle()


def test_a_name_that_is_taken_conflicts(client: tpu_v2.TpuClient) -> None:
    create(client)
    with pytest.raises(exceptions.Conflict, match="already exists") as raised:
        begin(client)
    assert raised.value.code == 409


def test_what_is_not_there_is_not_found(client: tpu_v2.TpuClient) -> None:
    for call in (
        lambda: client.get_node(name=NODE),
        lambda: client.delete_node(name=NODE),
        lambda: client.stop_node(request={"name": NODE}),
        lambda: client.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v3-9"),
        lambda: client.get_runtime_version(name=f"{PARENT}/runtimeVersions/none"),
        lambda: client.get_operation({"name": f"{PARENT}/operations/none"}),
    ):
        with pytest.raises(exceptions.NotFound, match="was not found"):
            call()


@pytest.mark.parametrize("name", ["one", "projects/p", f"{PARENT}/acceleratorTypes/v3-8", f"{NODE}/more"])
def test_a_name_of_the_wrong_shape_is_an_invalid_argument(grpc_client: tpu_v2.TpuClient, name: str) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        grpc_client.get_node(name=name)


def test_a_call_that_the_state_does_not_allow_is_a_bad_request(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client)
    with pytest.raises(exceptions.BadRequest, match="start is not supported while in state READY"):
        client.start_node(request={"name": NODE})
    api.run(api.world.preempt(NODE))
    node = tpu_v2.Node(name=NODE, labels={"a": "b"})
    with pytest.raises(exceptions.BadRequest, match="update is not supported while in state PREEMPTED"):
        client.update_node(node=node, update_mask="labels")


def test_a_slice_of_several_hosts_does_not_stop(client: tpu_v2.TpuClient) -> None:
    create(client, accelerator_type="v3-32")
    with pytest.raises(exceptions.BadRequest, match="single TPU nodes"):
        client.stop_node(request={"name": NODE})


def test_a_spot_node_does_not_start_again(client: tpu_v2.TpuClient) -> None:
    create(client, scheduling_config={"spot": True})
    client.stop_node(request={"name": NODE}).result(polling=POLLING)
    with pytest.raises(exceptions.BadRequest, match="preemptible"):
        client.start_node(request={"name": NODE})


def test_a_preempted_node_stays_listed_until_it_is_deleted(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client, scheduling_config={"spot": True})
    api.run(api.world.preempt(NODE))
    (listed,) = client.list_nodes(parent=PARENT)
    assert listed.state == tpu_v2.Node.State.PREEMPTED
    assert not api.hosts.up
    with pytest.raises(exceptions.Conflict):
        begin(client)
    client.delete_node(name=NODE).result(polling=POLLING)
    assert api.hosts.calls == [("start", "one"), ("stop", "one"), ("remove", "one")]
    create(client)


def test_a_stockout_ends_the_operation_and_the_node_disappears(client: tpu_v2.TpuClient, api: Api) -> None:
    api.faults.add("stockout", zone="europe-west4-a", count=1)
    operation = begin(client)
    with pytest.raises(exceptions.ResourceExhausted, match='no more capacity in the zone "europe-west4-a"'):
        operation.result(polling=POLLING)
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=NODE)
    states = [event.what for event in api.world.events if event.kind == "transition"]
    assert states == ["CREATING", "DELETED"]
    assert api.world.idle()
    create(client)


def test_a_missing_reservation_ends_the_operation_otherwise(client: tpu_v2.TpuClient, api: Api) -> None:
    api.faults.add("stockout", reserved=True)
    with pytest.raises(exceptions.FailedPrecondition, match="Insufficient reserved capacity"):
        create(client)


def test_a_quota_fails_the_call_with_its_details(client: tpu_v2.TpuClient, api: Api) -> None:
    limit = "TPUV3sPerProjectPerZoneForTPUAPI"
    api.faults.add("quota", zone="europe-west4-a", quota=limit, limit=0)
    with pytest.raises(
        exceptions.TooManyRequests, match=f"Quota limit '{limit}' has been exceeded"
    ) as raised:
        begin(client)
    (detail,) = raised.value.details  # over REST, the client leaves it as JSON
    failure = detail if isinstance(detail, dict) else json_format.MessageToDict(detail)
    assert (
        failure["violations"][0]["description"]
        == f"Quota '{limit}' exhausted. Limit 0 in zone europe-west4-a"
    )
    assert api.world.idle()


def test_a_fault_with_a_reason_carries_an_error_info(client: tpu_v2.TpuClient, api: Api) -> None:
    fault = grpc_fault(
        "tpu.GetNode", 7, "no", f"{PARENT}/*", reason="IAM_PERMISSION_DENIED", metadata={"a": "b"}
    )
    api.faults.add(fault)
    with pytest.raises(exceptions.Forbidden) as raised:
        client.get_node(name=NODE)
    assert (raised.value.reason, raised.value.metadata) == ("IAM_PERMISSION_DENIED", {"a": "b"})
    api.faults.clear()
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=NODE)


def test_a_fault_that_counts_passes_after_its_count(client: tpu_v2.TpuClient, api: Api) -> None:
    api.faults.add("unavailable", count=2)
    for _ in range(2):
        with pytest.raises(exceptions.ServiceUnavailable):
            client.list_nodes(parent=PARENT)
    assert not list(client.list_nodes(parent=PARENT))
    assert [event.kind for event in api.world.events] == ["request", "fault", "request", "fault", "request"]


@pytest.mark.parametrize("method", ["DeleteNode", "UpdateNode", "StopNode"])
def test_a_late_fault_leaves_the_node_as_it_was(grpc_client: tpu_v2.TpuClient, api: Api, method: str) -> None:
    create(grpc_client, labels={"a": "b"})
    api.faults.add(grpc_fault(f"tpu.{method}", 13, "broken", count=1, late=True))
    calls = {
        "DeleteNode": lambda: grpc_client.delete_node(name=NODE),
        "UpdateNode": lambda: grpc_client.update_node(node=tpu_v2.Node(name=NODE), update_mask="labels"),
        "StopNode": lambda: grpc_client.stop_node(request={"name": NODE}),
    }
    with pytest.raises(exceptions.InternalServerError, match="broken"):
        calls[method]().result(polling=POLLING)
    node = grpc_client.get_node(name=NODE)
    assert (node.state, dict(node.labels)) == (tpu_v2.Node.State.READY, {"a": "b"})


def test_hosts_that_do_not_start_fail_the_create(
    grpc_client: tpu_v2.TpuClient, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api.hosts.failure = OSError("no free port")
    with (
        caplog.at_level(logging.CRITICAL),
        pytest.raises(exceptions.InternalServerError, match="no free port"),
    ):
        create(grpc_client)
    assert api.world.idle()


def test_a_feature_that_is_not_simulated_is_unimplemented(client: tpu_v2.TpuClient) -> None:
    request = {"parent": PARENT, "order_by": "type desc"}
    with pytest.raises((exceptions.MethodNotImplemented, exceptions.ServerError), match="order_by") as raised:
        client.list_accelerator_types(request=request)
    assert raised.value.code == 501
