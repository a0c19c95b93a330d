"""The official asynchronous clients, of both versions."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import (
    TpuGrpcAsyncIOTransport as AlphaGrpcAsyncIOTransport,
)

from tests.sim.tpu.api import Api

PARENT = "projects/rehearsal/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
NAME = f"{PARENT}/queuedResources/q"
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
