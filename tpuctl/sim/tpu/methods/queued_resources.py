"""The methods of queued resources, and of the reservations that they use."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim.tpu import api_versions
from tpuctl.sim.tpu.methods.group import Method, MethodGroup, location_names
from tpuctl.sim.tpu.methods.request_fields import (
    CreateQueuedResourceRequest,
    DeleteQueuedResourceRequest,
    ListRequest,
    NameRequest,
    PerformMaintenanceQueuedResourceRequest,
)
from tpuctl.sim.world import names
from tpuctl.sim.world.pages import page


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
        sent = api_versions.to_v2(self._version, MessageToDict(request.queued_resource))
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
            reservations.all(names.list_prefix(request.parent)),
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
