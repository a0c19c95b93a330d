"""The API's methods: a request message in, the world asked, a response message out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2, json_format

from tpuctl.sim.tpu import messages
from tpuctl.sim.tpu.messages import Messages
from tpuctl.sim.world import Problem, World, names, offers, problem
from tpuctl.sim.world.pages import page

logger = logging.getLogger(__name__)

RESOURCES: dict[str, Callable[[Any], str]] = {
    "CreateNode": lambda request: f"{request.parent}/nodes/{request.node_id}",
    "UpdateNode": lambda request: str(request.node.name),
}
"""Methods whose resource is not simply the request's `name` or `parent`."""


class Service:
    """Answers the methods of one API version; both fronts speak through it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._messages = Messages(tpu_v2, "v2")
        self._methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "CreateNode": self._create_node,
            "GetNode": self._get_node,
            "ListNodes": self._list_nodes,
            "UpdateNode": self._update_node,
            "DeleteNode": self._delete_node,
            "StopNode": self._stop_node,
            "StartNode": self._start_node,
            "GetGuestAttributes": self._get_guest_attributes,
            "GetAcceleratorType": self._get_accelerator_type,
            "ListAcceleratorTypes": self._list_accelerator_types,
            "GetRuntimeVersion": self._get_runtime_version,
            "ListRuntimeVersions": self._list_runtime_versions,
            "GetLocation": self._get_location,
            "ListLocations": self._list_locations,
            "GetOperation": self._get_operation,
            "ListOperations": self._list_operations,
            "WaitOperation": self._wait_operation,
            "CancelOperation": self._cancel_operation,
            "DeleteOperation": self._delete_operation,
        }

    async def call(self, method: str, request: Any) -> Any:
        """Answer one call, plain protobuf messages both ways; raises `Problem` and nothing else."""
        try:
            self._world.admit(method, _resource(method, request))
            if method not in self._methods:
                raise problem("unimplemented", what=method)
            return await self._methods[method](request)
        except Problem:
            raise
        except Exception as bug:
            logger.exception("%s failed", method)
            raise problem("internal", what=f"{type(bug).__name__}: {bug}") from bug

    async def _create_node(self, request: Any) -> Any:
        sent = json_format.MessageToDict(request.node)
        return self._messages.operation(self._world.fleet.create(request.parent, request.node_id, sent))

    async def _get_node(self, request: Any) -> Any:
        return self._messages.node(self._world.fleet.get(request.name))

    async def _list_nodes(self, request: Any) -> Any:
        nodes, token = self._world.fleet.page(request.parent, request.page_size, request.page_token)
        shown = [self._messages.node(node) for node in nodes]
        return self._messages.new("ListNodesResponse", nodes=shown, next_page_token=token)

    async def _update_node(self, request: Any) -> Any:
        sent = json_format.MessageToDict(request.node)
        mask = list(request.update_mask.paths)
        return self._messages.operation(self._world.fleet.update(request.node.name, sent, mask))

    async def _delete_node(self, request: Any) -> Any:
        return self._messages.operation(self._world.fleet.delete(request.name))

    async def _stop_node(self, request: Any) -> Any:
        return self._messages.operation(self._world.fleet.stop(request.name))

    async def _start_node(self, request: Any) -> Any:
        return self._messages.operation(self._world.fleet.start(request.name))

    async def _get_guest_attributes(self, request: Any) -> Any:
        path = request.query_path
        workers = self._world.fleet.guest_attributes(request.name, list(request.worker_ids), path)
        shown = [self._messages.guest_attributes(path, attributes) for attributes in workers]
        return self._messages.new("GetGuestAttributesResponse", guest_attributes=shown)

    async def _get_accelerator_type(self, request: Any) -> Any:
        parent, zone, name = _in_zone(request.name, "acceleratorTypes")
        if name not in offers.types(zone):
            raise problem("not_found", name=request.name)
        return self._messages.accelerator_type(parent, offers.types(zone)[name])

    async def _list_accelerator_types(self, request: Any) -> Any:
        _no_filter(request)
        _, zone = names.place(request.parent)
        entries = offers.types(zone).values()
        found, token = page(entries, lambda one: one.type, request.page_size, request.page_token)
        shown = [self._messages.accelerator_type(request.parent, one) for one in found]
        return self._messages.new(
            "ListAcceleratorTypesResponse", accelerator_types=shown, next_page_token=token
        )

    async def _get_runtime_version(self, request: Any) -> Any:
        parent, _, version = _in_zone(request.name, "runtimeVersions")
        if version not in offers.RUNTIME_VERSIONS:
            raise problem("not_found", name=request.name)
        return self._messages.runtime_version(parent, version)

    async def _list_runtime_versions(self, request: Any) -> Any:
        _no_filter(request)
        found, token = page(offers.RUNTIME_VERSIONS, str, request.page_size, request.page_token)
        shown = [self._messages.runtime_version(request.parent, version) for version in found]
        return self._messages.new(
            "ListRuntimeVersionsResponse", runtime_versions=shown, next_page_token=token
        )

    async def _get_location(self, request: Any) -> Any:
        return messages.location(*names.place(request.name))

    async def _list_locations(self, request: Any) -> Any:
        _no_filter(request)
        project, _ = names.place(request.name)
        found, token = page(offers.zones(), str, request.page_size, request.page_token)
        shown = [messages.location(project, zone) for zone in found]
        return locations_pb2.ListLocationsResponse(locations=shown, next_page_token=token)

    async def _get_operation(self, request: Any) -> Any:
        return self._messages.operation(self._world.operations.get(request.name))

    async def _list_operations(self, request: Any) -> Any:
        _no_filter(request)
        found, token = self._world.operations.page(request.name, request.page_size, request.page_token)
        shown = [self._messages.operation(operation) for operation in found]
        return operations_pb2.ListOperationsResponse(operations=shown, next_page_token=token)

    async def _wait_operation(self, request: Any) -> Any:
        seconds = request.timeout.ToMilliseconds() / 1000 if request.HasField("timeout") else None
        return self._messages.operation(await self._world.operations.wait(request.name, seconds))

    async def _cancel_operation(self, request: Any) -> Any:
        self._world.cancel(request.name)
        return empty_pb2.Empty()

    async def _delete_operation(self, request: Any) -> Any:
        self._world.operations.forget(request.name)
        return empty_pb2.Empty()


def _resource(method: str, request: Any) -> str:
    if method in RESOURCES:
        return RESOURCES[method](request)
    return str(getattr(request, "name", "") or getattr(request, "parent", ""))


def _in_zone(name: str, collection: str) -> tuple[str, str, str]:
    """Split a full name into its parent, the zone and the last part."""
    names.require(name, collection)
    parent, _, last = name.partition(f"/{collection}/")
    return parent, names.place(name)[1], last


def _no_filter(request: Any) -> None:
    for field in ("filter", "order_by"):
        if getattr(request, field, ""):
            raise problem("unimplemented", what=field)
