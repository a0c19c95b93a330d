"""The methods of long-running operations."""

from __future__ import annotations

from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from tpuctl.sim.tpu.methods.group import Method, MethodGroup, filtered_page, location_names
from tpuctl.sim.world import api_error, names


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
        prefix = names.list_prefix(request.name)
        parent = request.name.removesuffix("/operations")
        unreachable = self._world.unreachable_zones(parent)
        if unreachable and not request.return_partial_success:
            raise api_error("unreachable")
        by_name = {
            operation.name: self._operation(operation)
            for operation in self._world.operations.all(prefix)
            if names.parse(operation.name).zone not in unreachable
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
