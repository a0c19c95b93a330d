"""The API's methods: a request message in, the world asked, a response message out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType
from typing import Any

from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2, json_format

from tpuctl.sim.accounts import project_number
from tpuctl.sim.tpu import dialects, messages
from tpuctl.sim.tpu.messages import Messages
from tpuctl.sim.world import Asked, Operation, Problem, World, names, problem
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.filters import matcher
from tpuctl.sim.world.pages import page

logger = logging.getLogger(__name__)

MODULES: dict[str, ModuleType] = {"v2": tpu_v2, "v2alpha1": tpu_v2alpha1}
"""Version of the API -> the client package with its messages."""

RESOURCES: dict[str, Callable[[Any], str]] = {
    "CreateNode": lambda request: f"{request.parent}/nodes/{request.node_id}",
    "CreateQueuedResource": lambda request: f"{request.parent}/queuedResources/{request.queued_resource_id}",
    "UpdateNode": lambda request: str(request.node.name),
}
"""Methods whose resource is not simply the request's `name` or `parent`."""

Method = Callable[[Any], Awaitable[Any]]


class Service:
    """Answers the methods of one API version; both fronts speak through it."""

    def __init__(self, world: World, version: str = "v2") -> None:
        self._world = world
        self._version = version
        self._all_messages = {name: Messages(module, name) for name, module in MODULES.items()}
        self._messages = self._all_messages[version]
        self._methods: dict[str, Method] = {
            **self._of_nodes(),
            **self._of_queued_resources(),
            **self._of_places(),
            **self._of_operations(),
        }

    async def call(self, method: str, request: Any) -> Any:
        """Answer one call, plain protobuf messages both ways; raises `Problem` and nothing else."""
        try:
            resource = _resource(method, request)
            self._world.admit(method, resource)
            answer = await self._methods[method](request)
            self._world.dismiss(method, resource)
            return answer
        except Problem:
            raise
        except Exception as bug:
            logger.exception("%s failed", method)
            raise problem("internal", what=f"{type(bug).__name__}: {bug}") from bug

    def _of_nodes(self) -> dict[str, Method]:
        return {
            "CreateNode": self._create_node,
            "GetNode": self._get_node,
            "ListNodes": self._list_nodes,
            "UpdateNode": self._update_node,
            "DeleteNode": self._delete_node,
            "StopNode": self._stop_node,
            "StartNode": self._start_node,
            "GetGuestAttributes": self._get_guest_attributes,
            "SimulateMaintenanceEvent": self._simulate_maintenance_event,
            "PerformMaintenance": self._perform_maintenance,
        }

    def _of_queued_resources(self) -> dict[str, Method]:
        return {
            "CreateQueuedResource": self._create_queued_resource,
            "GetQueuedResource": self._get_queued_resource,
            "ListQueuedResources": self._list_queued_resources,
            "DeleteQueuedResource": self._delete_queued_resource,
            "ResetQueuedResource": self._reset_queued_resource,
            "PerformMaintenanceQueuedResource": self._perform_maintenance_queued_resource,
            "ListReservations": self._list_reservations,
        }

    def _of_places(self) -> dict[str, Method]:
        return {
            "GenerateServiceIdentity": self._generate_service_identity,
            "GetAcceleratorType": self._get_accelerator_type,
            "ListAcceleratorTypes": self._list_accelerator_types,
            "GetRuntimeVersion": self._get_runtime_version,
            "ListRuntimeVersions": self._list_runtime_versions,
            "GetLocation": self._get_location,
            "ListLocations": self._list_locations,
        }

    def _of_operations(self) -> dict[str, Method]:
        return {
            "GetOperation": self._get_operation,
            "ListOperations": self._list_operations,
            "WaitOperation": self._wait_operation,
            "CancelOperation": self._cancel_operation,
            "DeleteOperation": self._delete_operation,
        }

    async def _create_node(self, request: Any) -> Any:
        sent = json_format.MessageToDict(request.node)
        asked = self._asked(request)
        return self._operation(self._world.fleet.create(request.parent, request.node_id, sent, asked))

    async def _get_node(self, request: Any) -> Any:
        return self._messages.node(self._world.fleet.get(request.name))

    async def _list_nodes(self, request: Any) -> Any:
        missing = self._world.unreachable(request.parent)
        nodes, token = self._world.fleet.page(request.parent, request.page_size, request.page_token, missing)
        shown = [self._messages.node(node) for node in nodes]
        return self._messages.new(
            "ListNodesResponse", nodes=shown, next_page_token=token, unreachable=_places(request, missing)
        )

    async def _update_node(self, request: Any) -> Any:
        sent = json_format.MessageToDict(request.node)
        mask = list(request.update_mask.paths)
        return self._operation(self._world.fleet.update(request.node.name, sent, mask, self._asked(request)))

    async def _delete_node(self, request: Any) -> Any:
        return self._operation(self._world.fleet.delete(request.name, self._asked(request)))

    async def _stop_node(self, request: Any) -> Any:
        return self._operation(self._world.fleet.stop(request.name, self._asked(request)))

    async def _start_node(self, request: Any) -> Any:
        return self._operation(self._world.fleet.start(request.name, self._asked(request)))

    async def _get_guest_attributes(self, request: Any) -> Any:
        path = request.query_path
        workers = self._world.fleet.guest_attributes(request.name, list(request.worker_ids), path)
        shown = [self._messages.guest_attributes(path, attributes) for attributes in workers]
        return self._messages.new("GetGuestAttributesResponse", guest_attributes=shown)

    async def _simulate_maintenance_event(self, request: Any) -> Any:
        workers, asked = list(request.worker_ids), self._asked(request)
        return self._operation(self._world.fleet.simulate_maintenance(request.name, workers, asked))

    async def _perform_maintenance(self, request: Any) -> Any:
        return self._operation(self._world.fleet.perform_maintenance(request.name, self._asked(request)))

    async def _create_queued_resource(self, request: Any) -> Any:
        sent = dialects.understood(self._version, json_format.MessageToDict(request.queued_resource))
        identifier, asked = request.queued_resource_id, self._asked(request)
        return self._operation(self._world.queue.create(request.parent, identifier, sent, asked))

    async def _get_queued_resource(self, request: Any) -> Any:
        return self._messages.queued_resource(self._world.queue.get(request.name))

    async def _list_queued_resources(self, request: Any) -> Any:
        missing = self._world.unreachable(request.parent)
        found, token = self._world.queue.page(request.parent, request.page_size, request.page_token, missing)
        return self._messages.new(
            "ListQueuedResourcesResponse",
            queued_resources=[self._messages.queued_resource(one) for one in found],
            next_page_token=token,
            unreachable=_places(request, missing),
        )

    async def _delete_queued_resource(self, request: Any) -> Any:
        asked = self._asked(request)
        return self._operation(self._world.queue.delete(request.name, force=request.force, asked=asked))

    async def _reset_queued_resource(self, request: Any) -> Any:
        return self._operation(self._world.queue.reset(request.name, self._asked(request)))

    async def _perform_maintenance_queued_resource(self, request: Any) -> Any:
        nodes, asked = list(request.node_names), self._asked(request)
        return self._operation(self._world.queue.perform_maintenance(request.name, nodes, asked))

    async def _list_reservations(self, request: Any) -> Any:
        supply, prefix = self._world.supply, names.prefix(request.parent)
        entries = [one for one in supply.reservations.values() if one.name.startswith(prefix)]
        found, token = page(entries, lambda one: one.name, request.page_size, request.page_token)
        shown = [self._messages.reservation(one, supply.taken(one.name)) for one in found]
        return self._messages.new("ListReservationsResponse", reservations=shown, next_page_token=token)

    async def _generate_service_identity(self, request: Any) -> Any:
        """The name of a project's service agent: Google's list of service agents."""
        project, _ = names.place(request.parent)
        email = f"service-{project_number(project)}@cloud-tpu.iam.gserviceaccount.com"
        return self._messages.new("GenerateServiceIdentityResponse", identity={"email": email})

    async def _get_accelerator_type(self, request: Any) -> Any:
        parent, zone, name = _in_zone(request.name, "acceleratorTypes")
        if name not in availability.types(zone):
            raise problem("not_found", name=request.name)
        return self._messages.accelerator_type(parent, availability.types(zone)[name])

    async def _list_accelerator_types(self, request: Any) -> Any:
        _, zone = names.place(request.parent)
        every = (
            self._messages.accelerator_type(request.parent, one) for one in availability.types(zone).values()
        )
        found, token = _page(request, every)
        return self._messages.new(
            "ListAcceleratorTypesResponse", accelerator_types=found, next_page_token=token
        )

    async def _get_runtime_version(self, request: Any) -> Any:
        parent, _, version = _in_zone(request.name, "runtimeVersions")
        if version not in availability.RUNTIME_VERSIONS:
            raise problem("not_found", name=request.name)
        return self._messages.runtime_version(parent, version)

    async def _list_runtime_versions(self, request: Any) -> Any:
        every = (self._messages.runtime_version(request.parent, one) for one in availability.RUNTIME_VERSIONS)
        found, token = _page(request, every)
        return self._messages.new(
            "ListRuntimeVersionsResponse", runtime_versions=found, next_page_token=token
        )

    async def _get_location(self, request: Any) -> Any:
        return messages.location(*names.place(request.name))

    async def _list_locations(self, request: Any) -> Any:
        project, _ = names.place(request.name)
        found, token = _page(request, (messages.location(project, zone) for zone in availability.zones()))
        return locations_pb2.ListLocationsResponse(locations=found, next_page_token=token)

    async def _get_operation(self, request: Any) -> Any:
        return self._operation(self._world.operations.get(request.name))

    async def _list_operations(self, request: Any) -> Any:
        prefix = names.prefix(request.name)
        missing = self._world.unreachable(request.name.removesuffix("/operations"))
        if missing and not request.return_partial_success:
            raise problem("unreachable")
        every = (
            self._operation(one)
            for one in self._world.operations.all(prefix)
            if names.place(one.name)[1] not in missing
        )
        found, token = _page(request, every)
        return operations_pb2.ListOperationsResponse(
            operations=found, next_page_token=token, unreachable=_places(request, missing)
        )

    async def _wait_operation(self, request: Any) -> Any:
        seconds = request.timeout.ToMilliseconds() / 1000 if request.HasField("timeout") else None
        return self._operation(await self._world.operations.wait(request.name, seconds))

    async def _cancel_operation(self, request: Any) -> Any:
        self._world.cancel(request.name)
        return empty_pb2.Empty()

    async def _delete_operation(self, request: Any) -> Any:
        self._world.operations.forget(request.name)
        return empty_pb2.Empty()

    def _asked(self, request: Any) -> Asked:
        return Asked(self._version, getattr(request, "request_id", ""))

    def _operation(self, operation: Operation) -> Any:
        """An operation speaks the version it was asked for in, whoever looks at it."""
        return self._all_messages[operation.asked.api_version].operation(operation)


def _resource(method: str, request: Any) -> str:
    if method in RESOURCES:
        return RESOURCES[method](request)
    return str(getattr(request, "name", "") or getattr(request, "parent", ""))


def _in_zone(name: str, collection: str) -> tuple[str, str, str]:
    """Split a full name into its parent, the zone and the last part."""
    names.require(name, collection)
    parent, _, last = name.partition(f"/{collection}/")
    return parent, names.place(name)[1], last


def _page(request: Any, every: Iterable[Any]) -> tuple[list[Any], str]:
    """One page, by name, of those messages that the request's filter lets through."""
    if getattr(request, "order_by", ""):
        raise problem("unimplemented", what="order_by")
    if request.filter:
        fits = matcher(request.filter)
        every = [one for one in every if fits(json_format.MessageToDict(one))]
    return page(every, lambda one: one.name, request.page_size, request.page_token)


def _places(request: Any, zones: Iterable[str]) -> list[str]:
    project, _ = names.place(getattr(request, "parent", "") or request.name)
    return [f"projects/{project}/locations/{zone}" for zone in zones]
