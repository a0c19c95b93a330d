"""Finds the function of each method of the API, for gRPC and for REST, and passes every call to it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim import resource_names
from tpuctl.sim.iam.callers import Caller, current_caller
from tpuctl.sim.iam.enforcement import Resource
from tpuctl.sim.records import DEFAULT_ACCOUNT
from tpuctl.sim.token_server import project_number, service_account
from tpuctl.sim.tpu import messages
from tpuctl.sim.tpu.messages import Messages
from tpuctl.sim.tpu.methods import (
    CreateNodeRequest,
    CreateQueuedResourceRequest,
    DeleteQueuedResourceRequest,
    FilteredListRequest,
    GetGuestAttributesRequest,
    ListRequest,
    Method,
    MethodGroup,
    NameRequest,
    ParentRequest,
    PerformMaintenanceQueuedResourceRequest,
    UpdateNodeRequest,
    WorkersRequest,
    filtered_page,
    location_names,
)
from tpuctl.sim.world import ApiError, World, api_error, resources
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.resources import page

PERMISSIONS = {
    "CreateNode": "tpu.nodes.create",
    "DeleteNode": "tpu.nodes.delete",
    "GetNode": "tpu.nodes.get",
    "ListNodes": "tpu.nodes.list",
    "UpdateNode": "tpu.nodes.update",
    "StartNode": "tpu.nodes.start",
    "StopNode": "tpu.nodes.stop",
    "GetGuestAttributes": "tpu.nodes.getGuestAttributes",
    "SimulateMaintenanceEvent": "tpu.nodes.simulateMaintenanceEvent",
    "PerformMaintenance": "tpu.nodes.performMaintenance",
    "CreateQueuedResource": "tpu.queuedResources.create",
    "DeleteQueuedResource": "tpu.queuedResources.delete",
    "GetQueuedResource": "tpu.queuedResources.get",
    "ListQueuedResources": "tpu.queuedResources.list",
    "ResetQueuedResource": "tpu.queuedResources.reset",
    "PerformMaintenanceQueuedResource": "tpu.queuedResources.performMaintenance",
    "ListReservations": "tpu.reservations.list",
    "GenerateServiceIdentity": "tpu.locations.generateServiceIdentity",
    "GetAcceleratorType": "tpu.acceleratortypes.get",
    "ListAcceleratorTypes": "tpu.acceleratortypes.list",
    "GetRuntimeVersion": "tpu.runtimeversions.get",
    "ListRuntimeVersions": "tpu.runtimeversions.list",
    "GetLocation": "tpu.locations.get",
    "ListLocations": "tpu.locations.list",
    "GetOperation": "tpu.operations.get",
    "ListOperations": "tpu.operations.list",
    "WaitOperation": "tpu.operations.get",
    "CancelOperation": "tpu.operations.cancel",
    "DeleteOperation": "tpu.operations.delete",
}
ACT_AS = "iam.serviceAccounts.actAs"
TYPES = {"nodes": "tpu.googleapis.com/Node", "queuedResources": "tpu.googleapis.com/QueuedResource"}
"""Collection -> the type of its resources, for conditions."""


# The methods that show what projects and zones offer.


class LocationMethods(MethodGroup):
    """The methods that show what projects and zones offer."""

    def table(self) -> dict[str, Method]:
        return {
            "GenerateServiceIdentity": self._generate_service_identity,
            "GetAcceleratorType": self._get_accelerator_type,
            "ListAcceleratorTypes": self._list_accelerator_types,
            "GetRuntimeVersion": self._get_runtime_version,
            "ListRuntimeVersions": self._list_runtime_versions,
            "GetLocation": self._get_location,
            "ListLocations": self._list_locations,
        }

    async def _generate_service_identity(self, request: ParentRequest) -> Message:
        """The name of a project's service agent: Google's list of service agents."""
        number = project_number(resources.parse(request.parent).project)
        email = f"service-{number}@cloud-tpu.iam.gserviceaccount.com"
        return self._messages.new("GenerateServiceIdentityResponse", identity={"email": email})

    async def _get_accelerator_type(self, request: NameRequest) -> Message:
        resources.require_collection(request.name, "acceleratorTypes")
        name = resources.parse(request.name)
        offered = availability.accelerator_types(name.zone)
        if name.id not in offered:
            raise api_error("not_found", name=request.name)
        return self._messages.accelerator_type(name.parent, offered[name.id])

    async def _list_accelerator_types(self, request: FilteredListRequest) -> Message:
        offered = availability.accelerator_types(resources.parse(request.parent).zone)
        listed, next_token = filtered_page(
            request,
            {
                name: self._messages.accelerator_type(request.parent, accelerator)
                for name, accelerator in offered.items()
            },
        )
        return self._messages.new(
            "ListAcceleratorTypesResponse", accelerator_types=listed, next_page_token=next_token
        )

    async def _get_runtime_version(self, request: NameRequest) -> Message:
        resources.require_collection(request.name, "runtimeVersions")
        name = resources.parse(request.name)
        if name.id not in availability.RUNTIME_VERSIONS:
            raise api_error("not_found", name=request.name)
        return self._messages.runtime_version(name.parent, name.id)

    async def _list_runtime_versions(self, request: FilteredListRequest) -> Message:
        listed, next_token = filtered_page(
            request,
            {
                version: self._messages.runtime_version(request.parent, version)
                for version in availability.RUNTIME_VERSIONS
            },
        )
        return self._messages.new(
            "ListRuntimeVersionsResponse", runtime_versions=listed, next_page_token=next_token
        )

    async def _get_location(self, request: locations_pb2.GetLocationRequest) -> Message:
        name = resources.parse(request.name)
        location: Message = messages.location(name.project, name.zone)
        return location

    async def _list_locations(self, request: locations_pb2.ListLocationsRequest) -> Message:
        project = resources.parse(request.name).project
        by_zone = {zone: messages.location(project, zone) for zone in availability.zones()}
        listed, next_token = filtered_page(request, by_zone)
        response: Message = locations_pb2.ListLocationsResponse(locations=listed, next_page_token=next_token)
        return response


# The methods of queued resources, and of the reservations that they use.


class QueuedResourceMethods(MethodGroup):
    """The methods of queued resources, and of the reservations that they use."""

    def table(self) -> dict[str, Method]:
        return {
            "CreateQueuedResource": self._create_queued_resource,
            "GetQueuedResource": self._get_queued_resource,
            "ListQueuedResources": self._list_queued_resources,
            "DeleteQueuedResource": self._delete_queued_resource,
            "ResetQueuedResource": self._reset_queued_resource,
            "PerformMaintenanceQueuedResource": self._perform_maintenance_queued_resource,
            "ListReservations": self._list_reservations,
        }

    async def _create_queued_resource(self, request: CreateQueuedResourceRequest) -> Message:
        sent = messages.to_v2(self._version, MessageToDict(request.queued_resource))
        identifier, context = request.queued_resource_id, self._context(request)
        return self._operation(self._world.queued_resources.create(request.parent, identifier, sent, context))

    async def _get_queued_resource(self, request: NameRequest) -> Message:
        return self._messages.queued_resource(self._world.queued_resources.get(request.name))

    async def _list_queued_resources(self, request: ListRequest) -> Message:
        unreachable = self._world.unreachable_zones(request.parent)
        size, token = request.page_size, request.page_token
        listed, next_token = self._world.queued_resources.page(request.parent, size, token, unreachable)
        return self._messages.new(
            "ListQueuedResourcesResponse",
            queued_resources=[self._messages.queued_resource(queued) for queued in listed],
            next_page_token=next_token,
            unreachable=location_names(request.parent, unreachable),
        )

    async def _delete_queued_resource(self, request: DeleteQueuedResourceRequest) -> Message:
        force, context = request.force, self._context(request)
        return self._operation(
            self._world.queued_resources.delete(request.name, force=force, context=context)
        )

    async def _reset_queued_resource(self, request: NameRequest) -> Message:
        return self._operation(self._world.queued_resources.reset(request.name, self._context(request)))

    async def _perform_maintenance_queued_resource(
        self, request: PerformMaintenanceQueuedResourceRequest
    ) -> Message:
        nodes, context = list(request.node_names), self._context(request)
        return self._operation(self._world.queued_resources.perform_maintenance(request.name, nodes, context))

    async def _list_reservations(self, request: ListRequest) -> Message:
        reservations = self._world.capacity.reservations
        listed, next_token = page(
            reservations.all(resources.list_prefix(request.parent)),
            lambda reservation: reservation.name,
            request.page_size,
            request.page_token,
        )
        return self._messages.new(
            "ListReservationsResponse",
            reservations=[
                self._messages.reservation(reservation, reservations.used(reservation.name))
                for reservation in listed
            ],
            next_page_token=next_token,
        )


# The methods of nodes.


class NodeMethods(MethodGroup):
    """The methods of nodes."""

    def table(self) -> dict[str, Method]:
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

    async def _create_node(self, request: CreateNodeRequest) -> Message:
        sent, context = MessageToDict(request.node), self._context(request)
        return self._operation(self._world.nodes.create(request.parent, request.node_id, sent, context))

    async def _get_node(self, request: NameRequest) -> Message:
        return self._messages.node(self._world.nodes.get(request.name))

    async def _list_nodes(self, request: ListRequest) -> Message:
        unreachable = self._world.unreachable_zones(request.parent)
        size, token = request.page_size, request.page_token
        nodes, next_token = self._world.nodes.page(request.parent, size, token, unreachable)
        return self._messages.new(
            "ListNodesResponse",
            nodes=[self._messages.node(node) for node in nodes],
            next_page_token=next_token,
            unreachable=location_names(request.parent, unreachable),
        )

    async def _update_node(self, request: UpdateNodeRequest) -> Message:
        sent, mask = MessageToDict(request.node), list(request.update_mask.paths)
        name = sent.get("name", "")
        return self._operation(self._world.nodes.update(name, sent, mask, self._context(request)))

    async def _delete_node(self, request: NameRequest) -> Message:
        return self._operation(self._world.nodes.delete(request.name, self._context(request)))

    async def _stop_node(self, request: NameRequest) -> Message:
        return self._operation(self._world.nodes.stop(request.name, self._context(request)))

    async def _start_node(self, request: NameRequest) -> Message:
        return self._operation(self._world.nodes.start(request.name, self._context(request)))

    async def _get_guest_attributes(self, request: GetGuestAttributesRequest) -> Message:
        path, workers = request.query_path, list(request.worker_ids)
        of_workers = self._world.nodes.guest_attributes(request.name, workers, path)
        listed = [self._messages.guest_attributes(path, attributes) for attributes in of_workers]
        return self._messages.new("GetGuestAttributesResponse", guest_attributes=listed)

    async def _simulate_maintenance_event(self, request: WorkersRequest) -> Message:
        workers, context = list(request.worker_ids), self._context(request)
        return self._operation(self._world.nodes.simulate_maintenance(request.name, workers, context))

    async def _perform_maintenance(self, request: NameRequest) -> Message:
        return self._operation(self._world.nodes.perform_maintenance(request.name, self._context(request)))


# The methods of long-running operations.


class OperationMethods(MethodGroup):
    """The methods of long-running operations."""

    def table(self) -> dict[str, Method]:
        return {
            "GetOperation": self._get_operation,
            "ListOperations": self._list_operations,
            "WaitOperation": self._wait_operation,
            "CancelOperation": self._cancel_operation,
            "DeleteOperation": self._delete_operation,
        }

    async def _get_operation(self, request: operations_pb2.GetOperationRequest) -> Message:
        return self._operation(self._world.operations.get(request.name))

    async def _list_operations(self, request: operations_pb2.ListOperationsRequest) -> Message:
        prefix = resources.list_prefix(request.name)
        parent = request.name.removesuffix("/operations")
        unreachable = self._world.unreachable_zones(parent)
        if unreachable and not request.return_partial_success:
            raise api_error("unreachable")
        by_name = {
            operation.name: self._operation(operation)
            for operation in self._world.operations.all(prefix)
            if resources.parse(operation.name).zone not in unreachable
        }
        listed, next_token = filtered_page(request, by_name)
        response: Message = operations_pb2.ListOperationsResponse(
            operations=listed,
            next_page_token=next_token,
            unreachable=location_names(parent, unreachable),
        )
        return response

    async def _wait_operation(self, request: operations_pb2.WaitOperationRequest) -> Message:
        seconds = request.timeout.ToMilliseconds() / 1000 if request.HasField("timeout") else None
        return self._operation(await self._world.operations.wait(request.name, seconds))

    async def _cancel_operation(self, request: operations_pb2.CancelOperationRequest) -> Message:
        self._world.cancel_operation(request.name)
        return empty_pb2.Empty()

    async def _delete_operation(self, request: operations_pb2.DeleteOperationRequest) -> Message:
        self._world.operations.delete(request.name)
        return empty_pb2.Empty()


logger = logging.getLogger(__name__)

MODULES: dict[str, ModuleType] = {"v2": tpu_v2, "v2alpha1": tpu_v2alpha1}
"""Version of the API -> the client package with its messages."""

RESOURCES: dict[str, Callable[[Any], str]] = {
    "CreateNode": lambda request: f"{request.parent}/nodes/{request.node_id}",
    "CreateQueuedResource": lambda request: f"{request.parent}/queuedResources/{request.queued_resource_id}",
    "UpdateNode": lambda request: str(request.node.name),
}
"""Methods whose resource is not simply the request's `name` or `parent`."""

READS = re.compile("(Get|List|Wait)[A-Z]")
"""Methods that change nothing: the event log has no room for their requests."""

GROUPS = (NodeMethods, QueuedResourceMethods, LocationMethods, OperationMethods)


class Service:
    """Answers the methods of one API version."""

    def __init__(self, world: World, version: str = "v2") -> None:
        self.version = version
        self._world = world
        messages = {name: Messages(module, name) for name, module in MODULES.items()}
        self._methods: dict[str, Method] = {}
        for group in GROUPS:
            self._methods |= group(world, version, messages).table()

    async def call(self, method: str, request: Message) -> Message:
        """Return the response to a request, both plain protobuf messages; raises `ApiError` alone."""
        try:
            resource = _resource(method, request)
            self._world.before_call(method, resource, _body(method, request))
            authorize(method, resource, request)
            response = await self._methods[method](request)
            self._world.after_call(method, resource)
            return response
        except ApiError:
            raise
        except Exception as bug:
            logger.exception("%s failed", method)
            raise api_error("internal", reason=f"{type(bug).__name__}: {bug}") from bug


def _resource(method: str, request: Message) -> str:
    """Return the name of the resource that a request is about."""
    if method in RESOURCES:
        return RESOURCES[method](request)
    return str(getattr(request, "name", "") or getattr(request, "parent", ""))


def _body(method: str, request: Message) -> dict[str, object] | None:
    """Return a request in its JSON form, for the event log; None for one that only reads."""
    return None if READS.match(method) else MessageToDict(request)


# Refuses calls of the Cloud TPU API that the caller's roles do not allow, in Google's words.
#
# Permissions: https://cloud.google.com/tpu/docs/iam; those that it does not list follow its pattern.


def authorize(method: str, resource: str, request: Message) -> None:
    """Raise the API's error unless the caller may call a method on a resource."""
    caller = current_caller()
    if caller is None:
        return
    name = resource_names.parse(resource)
    about = Resource(name.project, resource, TYPES.get(name.collection, ""))
    permission = PERMISSIONS[method]
    if not caller.member:
        raise api_error("unauthenticated")
    if not caller.may(permission, about):
        raise api_error("permission", permission=permission, resource=resource)
    for account in _accounts(method, request):
        _authorize_account(caller, name.project, account or service_account(name.project))


def _accounts(method: str, request: Any) -> Iterator[str]:
    """Yield the accounts as which the hosts of requested nodes are to run, '' for the default one."""
    if method == "CreateNode":
        nodes = [request.node]
    elif method == "CreateQueuedResource":
        nodes = [spec.node for spec in request.queued_resource.tpu.node_spec]
    else:
        nodes = []
    for node in nodes:
        email = str(node.service_account.email)
        yield "" if email == DEFAULT_ACCOUNT else email


def _authorize_account(caller: Caller, project: str, account: str) -> None:
    name = f"projects/{project}/serviceAccounts/{account}"
    if not caller.may(ACT_AS, Resource(project, name, "iam.googleapis.com/ServiceAccount", account=account)):
        raise api_error("act_as", account=account, user=caller.label, permission=ACT_AS, resource=name)
