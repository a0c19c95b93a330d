"""The methods of nodes."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim.tpu.methods.group import Method, MethodGroup, location_names
from tpuctl.sim.tpu.methods.request_fields import (
    CreateNodeRequest,
    GetGuestAttributesRequest,
    ListRequest,
    NameRequest,
    UpdateNodeRequest,
    WorkersRequest,
)


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
