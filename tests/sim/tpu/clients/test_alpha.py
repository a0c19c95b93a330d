"""API v2alpha1 through its own official client: its own methods and fields, and resources of v2.

The official asynchronous clients, of both versions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
import requests
from google.api_core import exceptions
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import (
    TpuGrpcAsyncIOTransport as AlphaGrpcAsyncIOTransport,
)
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport

from tests.sim.tpu.api import POLLING, Api
from tpuctl.sim.tpu.grpc_api import MIXINS, rpcs
from tpuctl.sim.tpu.http_rules import routes
from tpuctl.sim.tpu.service import Service
from tpuctl.sim.world import Reservation

PARENT = "projects/rehearsal/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
NAME = f"{PARENT}/queuedResources/q"
RUNTIME = "tpu-ubuntu2204-base"
State = tpu_v2alpha1.Node.State


@pytest.fixture
def alpha(channel: grpc.Channel) -> tpu_v2alpha1.TpuClient:
    return tpu_v2alpha1.TpuClient(transport=TpuGrpcTransport(channel=channel))


def create(alpha: tpu_v2alpha1.TpuClient, **fields: Any) -> tpu_v2alpha1.Node:
    node = tpu_v2alpha1.Node(**{"accelerator_type": "v3-8", "runtime_version": RUNTIME, **fields})
    return alpha.create_node(parent=PARENT, node_id="one", node=node).result(polling=POLLING)


def queue(alpha: tpu_v2alpha1.TpuClient, spec: dict[str, Any], **fields: Any) -> Any:
    node = tpu_v2alpha1.Node(accelerator_type="v3-8", runtime_version=RUNTIME)
    tpu = {"node_spec": [{"parent": PARENT, "node": node, **spec}]}
    return alpha.create_queued_resource(
        parent=PARENT,
        queued_resource_id="q",
        queued_resource=tpu_v2alpha1.QueuedResource(tpu=tpu, **fields),
    ).result(polling=POLLING)


def wait_for_active(api: Api) -> None:
    api.until(lambda: api.world.queued_resources.get(NAME).state == "ACTIVE")


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_every_method_of_the_client_is_answered(api: Api, version: str) -> None:
    names = {rpc.name for rpc in [*rpcs(version), *MIXINS]}
    assert names <= set(Service(api.world, version)._methods)
    over_rest = {route.method for route in routes() if route.version == version}
    assert names - over_rest == {"WaitOperation"}  # which the client's REST rules do not have


def test_a_node_created_in_one_version_is_the_same_in_the_other(
    alpha: tpu_v2alpha1.TpuClient, grpc_client: tpu_v2.TpuClient
) -> None:
    created = create(
        alpha,
        scheduling_config={"spot": True},
        shielded_instance_config={"enable_secure_boot": True},
        autocheckpoint_enabled=True,
        boot_disk_config={"customer_encryption_key": {"kms_key_name": "key"}},
    )
    assert created.api_version == tpu_v2alpha1.Node.ApiVersion.V2_ALPHA1
    assert created.autocheckpoint_enabled
    assert created.boot_disk_config.customer_encryption_key.kms_key_name == "key"
    assert created.accelerator_config.type_ == tpu_v2alpha1.AcceleratorConfig.Type.V3
    in_v2 = grpc_client.get_node(name=NODE)
    assert (in_v2.id, in_v2.accelerator_config.topology) == (created.id, "2x2")
    assert in_v2.shielded_instance_config.enable_secure_boot
    assert in_v2.api_version == tpu_v2.Node.ApiVersion.V2
    assert alpha.get_node(name=NODE) == created


def test_an_operation_has_the_version_that_began_it(
    alpha: tpu_v2alpha1.TpuClient, grpc_client: tpu_v2.TpuClient
) -> None:
    create(alpha)
    (operation,) = grpc_client.list_operations({"name": PARENT}).operations
    assert operation.metadata.type_url.endswith("google.cloud.tpu.v2alpha1.OperationMetadata")
    assert operation.response.type_url.endswith("google.cloud.tpu.v2alpha1.Node")
    deleting = grpc_client.delete_node(name=NODE)
    deleting.result(polling=POLLING)
    assert deleting.operation.metadata.type_url.endswith("google.cloud.tpu.v2.OperationMetadata")


def test_create_and_delete_of_a_node_are_idempotent_by_their_request_id(
    alpha: tpu_v2alpha1.TpuClient, api: Api
) -> None:
    node = tpu_v2alpha1.Node(accelerator_type="v3-8", runtime_version=RUNTIME)
    request = {"parent": PARENT, "node_id": "one", "node": node, "request_id": "create-1"}
    first = alpha.create_node(request=request)
    first.result(polling=POLLING)
    assert alpha.create_node(request=request).operation.name == first.operation.name
    with pytest.raises(exceptions.Conflict):
        alpha.create_node(request={**request, "request_id": "create-2"})
    deletion = {"name": NODE, "request_id": "delete-1"}
    deleting = alpha.delete_node(request=deletion)
    deleting.result(polling=POLLING)
    assert alpha.delete_node(request=deletion).operation.name == deleting.operation.name
    assert api.world.idle()


def test_every_other_method_on_a_node(alpha: tpu_v2alpha1.TpuClient) -> None:
    create(alpha)
    updated = alpha.update_node(
        node=tpu_v2alpha1.Node(name=NODE, labels={"a": "b"}), update_mask="labels"
    ).result(polling=POLLING)
    assert dict(updated.labels) == {"a": "b"}
    assert alpha.stop_node(request={"name": NODE}).result(polling=POLLING).state == State.STOPPED
    assert alpha.start_node(request={"name": NODE}).result(polling=POLLING).state == State.READY
    assert [node.name for node in alpha.list_nodes(parent=PARENT)] == [NODE]
    (attributes,) = alpha.get_guest_attributes(request={"name": NODE}).guest_attributes
    assert attributes.query_value.items
    types = alpha.list_accelerator_types(parent=PARENT)
    assert alpha.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v3-8") in list(types)
    versions = alpha.list_runtime_versions(parent=PARENT)
    assert alpha.get_runtime_version(name=f"{PARENT}/runtimeVersions/{RUNTIME}") in list(versions)
    assert alpha.generate_service_identity(request={"parent": PARENT}).identity.email
    assert alpha.get_location({"name": PARENT}).location_id == "europe-west4-a"
    alpha.delete_node(name=NODE).result(polling=POLLING)


def test_several_nodes_have_another_name_here(
    alpha: tpu_v2alpha1.TpuClient, grpc_client: tpu_v2.TpuClient, api: Api
) -> None:
    several = {"multi_node_params": {"node_count": 2, "workload_type": "AVAILABILITY_OPTIMIZED"}}
    queued = queue(alpha, several, best_effort={})
    wait_for_active(api)
    (spec,) = queued.tpu.node_spec
    assert (spec.multi_node_params.node_count, spec.multi_node_params.workload_type) == (2, 2)
    assert "best_effort" in queued
    in_v2 = grpc_client.get_queued_resource(name=NAME)
    assert in_v2.tpu.node_spec[0].multislice_params.node_count == 2
    assert all(node.scheduling_config.preemptible for node in alpha.list_nodes(parent=PARENT))
    assert [queued.name for queued in alpha.list_queued_resources(parent=PARENT)] == [NAME]
    reset = alpha.reset_queued_resource(request={"name": NAME}).result(polling=POLLING)
    assert reset.name == NAME
    wait_for_active(api)
    deleted = alpha.delete_queued_resource(request={"name": NAME, "force": True})
    assert deleted.result(polling=POLLING).name == NAME
    assert api.world.idle()


def test_reservations_are_listed_with_their_use(alpha: tpu_v2alpha1.TpuClient, api: Api) -> None:
    name = f"{PARENT}/reservations/r"
    api.world.capacity.reservations.add(Reservation(name, "v3-8", 32))
    queue(alpha, {"node_id": "one"}, guaranteed={"reserved": True})
    wait_for_active(api)
    (reservation,) = alpha.list_reservations(request={"parent": PARENT})
    assert (reservation.name, reservation.standard.size, reservation.standard.usage.total) == (name, 32, 8)
    assert reservation.standard.capacity_units == tpu_v2alpha1.Reservation.Standard.CapacityUnits.CORES
    assert reservation.state == tpu_v2alpha1.Reservation.State.ACTIVE


def test_a_simulated_maintenance_is_announced_to_one_worker_and_the_node_stays(
    alpha: tpu_v2alpha1.TpuClient, api: Api
) -> None:
    create(alpha, accelerator_type="v3-32")
    request = {"name": NODE, "worker_ids": ["2", "3"]}
    noticed = alpha.simulate_maintenance_event(request=request).result(polling=POLLING)
    assert noticed.state == State.READY
    assert noticed.upcoming_maintenance.can_reschedule
    ((hostname, event, preempted),) = api.hosts.notices
    assert hostname.endswith("-w-2")
    assert (event, preempted) == ("TERMINATE_ON_HOST_MAINTENANCE", False)
    with pytest.raises(exceptions.InvalidArgument, match="no worker 4"):
        alpha.simulate_maintenance_event(request={"name": NODE, "worker_ids": ["4"]})


def test_a_maintenance_stops_the_hosts_and_starts_them(alpha: tpu_v2alpha1.TpuClient, api: Api) -> None:
    create(alpha)
    alpha.simulate_maintenance_event(request={"name": NODE}).result(polling=POLLING)
    node = alpha.perform_maintenance(request={"name": NODE}).result(polling=POLLING)
    assert (node.state, "upcoming_maintenance" in node) == (State.READY, False)
    assert api.hosts.calls == [("start", "one"), ("stop", "one"), ("start", "one")]


def test_a_maintenance_of_a_queued_resource_is_one_of_the_nodes_named(
    alpha: tpu_v2alpha1.TpuClient, api: Api
) -> None:
    queue(alpha, {"multi_node_params": {"node_count": 2}})
    wait_for_active(api)
    request = {"name": NAME, "node_names": ["q-1"]}
    queued = alpha.perform_maintenance_queued_resource(request=request).result(polling=POLLING)
    assert queued.state.state == tpu_v2alpha1.QueuedResourceState.State.ACTIVE
    assert [call for call in api.hosts.calls if call[0] == "stop"] == [("stop", "q-1")]
    with pytest.raises(exceptions.InvalidArgument, match="no node other"):
        alpha.perform_maintenance_queued_resource(request={"name": NAME, "node_names": ["other"]})


def test_rest_has_the_same_paths_and_what_gcloud_adds(api: Api) -> None:
    base = f"{api.rest_address}/v2alpha1/{PARENT}"
    body: dict[str, Any] = {
        "tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": "one", "node": {"acceleratorType": "v3-8"}}]},
        "spot": {},
        "provisioningModel": "SPOT",
    }
    body["tpu"]["nodeSpec"][0]["node"]["runtimeVersion"] = RUNTIME
    answer = requests.post(f"{base}/queuedResources?queuedResourceId=q", json=body, timeout=60)
    assert answer.json()["metadata"]["apiVersion"] == "v2alpha1"
    wait_for_active(api)
    assert requests.get(f"{base}/reservations", timeout=60).json() == {}
    answer = requests.post(f"{base}/nodes/one:simulateMaintenanceEvent", json={}, timeout=60)
    assert answer.json()["metadata"]["verb"] == "simulateMaintenanceEvent"
    body["provisioningModel"] = "FLEX_START"
    answer = requests.post(f"{base}/queuedResources?queuedResourceId=r", json=body, timeout=60)
    assert answer.status_code == 400
    assert "FLEX_START cannot be combined with spot" in answer.json()["error"]["message"]


DIRECTLY = [("grpc.enable_http_proxy", 0)]
VERSIONS = {
    "v2": (tpu_v2, TpuGrpcAsyncIOTransport, "multislice_params"),
    "v2alpha1": (tpu_v2alpha1, AlphaGrpcAsyncIOTransport, "multi_node_params"),
}


async def ended(client: Any, operation: Any) -> None:
    """Wait for an operation; its own waiting starts with a pause of a second."""
    while not (await client.get_operation({"name": operation.operation.name})).done:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_asynchronous_client_sees_a_node_through_its_life(api: Api, version: str) -> None:
    module, transport, _ = VERSIONS[version]

    async def story() -> None:
        async with grpc.aio.insecure_channel(api.grpc_address, options=DIRECTLY) as channel:
            client = module.TpuAsyncClient(transport=transport(channel=channel))
            node = module.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
            creating = await client.create_node(parent=PARENT, node_id="one", node=node)
            assert (await creating.result()).state == module.Node.State.READY
            await ended(client, await client.stop_node(request={"name": NODE}))
            await ended(client, await client.start_node(request={"name": NODE}))
            relabelled = module.Node(name=NODE, labels={"a": "b"})
            await ended(client, await client.update_node(node=relabelled, update_mask="labels"))
            pager = await client.list_nodes(parent=PARENT)
            assert [dict(node.labels) async for node in pager] == [{"a": "b"}]
            await ended(client, await client.delete_node(name=NODE))
            with pytest.raises(exceptions.NotFound):
                await client.get_node(name=NODE)
            pager = await client.list_accelerator_types(parent=PARENT)
            types = [accelerator.type_ async for accelerator in pager]
            assert "v3-8" in types
            assert (await client.list_locations({"name": "projects/rehearsal"})).locations

    asyncio.run(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_asynchronous_client_queues_and_deletes_with_force(api: Api, version: str) -> None:
    module, transport, several = VERSIONS[version]

    async def story() -> None:
        async with grpc.aio.insecure_channel(api.grpc_address, options=DIRECTLY) as channel:
            client = module.TpuAsyncClient(transport=transport(channel=channel))
            node = module.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
            spec = {"parent": PARENT, "node": node, several: {"node_count": 2}}
            queued = module.QueuedResource(tpu={"node_spec": [spec]})
            request = {"parent": PARENT, "queued_resource_id": "q", "queued_resource": queued}
            await client.create_queued_resource(request=request)
            queued = await client.get_queued_resource(name=NAME)
            while queued.state.state != module.QueuedResourceState.State.ACTIVE:
                await asyncio.sleep(0.005)
                queued = await client.get_queued_resource(name=NAME)
            pager = await client.list_queued_resources(parent=PARENT)
            assert [listed.name async for listed in pager] == [NAME]
            await ended(client, await client.reset_queued_resource(request={"name": NAME}))
            deletion = {"name": NAME, "force": True}
            await ended(client, await client.delete_queued_resource(request=deletion))
            assert api.world.idle()

    asyncio.run(story())
