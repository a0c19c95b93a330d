"""Serves the Cloud TPU API over gRPC, by generic handlers for a `grpc.aio` server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, Protocol

import grpc
from google.cloud import tpu_v2
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from grpc_status import rpc_status

from tpuctl.sim.tpu import api_v1
from tpuctl.sim.tpu.messages import status_message
from tpuctl.sim.tpu.rpcs import MIXINS, Rpc, rpcs
from tpuctl.sim.tpu.service import MODULES, Service
from tpuctl.sim.world import ApiError, World, api_error

PATHS = {
    "GetNode": "/v1/{request.name}",
    "ListNodes": "/v1/{request.parent}/nodes",
    "GetTensorFlowVersion": "/v1/{request.name}",
    "ListTensorFlowVersions": "/v1/{request.parent}/tensorflowVersions",
}
"""Methods that v1 has differently -> their path of REST."""
SAME = ("GetAcceleratorType", "ListAcceleratorTypes")
"""Methods that v2 has, too, with more fields in their answers."""


class Answering(Protocol):
    """A version of the API."""

    async def call(self, method: str, request: Message) -> Message: ...


class Context(Protocol):
    """The methods of grpc.aio.ServicerContext that are called here."""

    def peer(self) -> str: ...

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...

    async def abort_with_status(self, status: grpc.Status) -> NoReturn: ...


Behaviour = Callable[[Message, Context], Awaitable[Message]]
"""Answers the calls of a method."""
Enter = Callable[[Context], Awaitable[None]]
"""Makes a call's sender the caller of the current task."""


async def no_caller(context: Context) -> None:
    """Leave the caller open: roles are not enforced."""


def handlers(world: World, enter: Enter = no_caller) -> Sequence[grpc.GenericRpcHandler[Message, Message]]:
    """Return a handler for each service: google.cloud.tpu.v1, v2 and v2alpha1, Operations and Locations."""
    by_service: dict[str, dict[str, grpc.RpcMethodHandler[Message, Message]]] = defaultdict(dict)
    services = {version: Service(world, version) for version in MODULES}
    tables: list[tuple[Answering, tuple[Rpc, ...]]] = [
        (services[version], rpcs(version)) for version in MODULES
    ]
    tables += [(services["v2"], MIXINS), (ReadingService(services["v2"]), rpcs("v1"))]
    for service, table in tables:
        for rpc in table:
            by_service[rpc.service][rpc.name] = grpc.unary_unary_rpc_method_handler(
                _entered(enter, _behaviour(service, rpc)),
                request_deserializer=rpc.request.FromString,
                response_serializer=rpc.response.SerializeToString,
            )
    return [grpc.method_handlers_generic_handler(name, methods) for name, methods in by_service.items()]


def _entered(enter: Enter, behaviour: Behaviour) -> Behaviour:
    async def respond(request: Message, context: Context) -> Message:
        await enter(context)
        return await behaviour(request, context)

    return respond


def _behaviour(service: Answering, rpc: Rpc) -> Behaviour:
    async def respond(request: Message, context: Context) -> Message:
        try:
            return await service.call(rpc.name, request)
        except ApiError as failure:
            await context.abort_with_status(rpc_status.to_status(status_message(failure.status)))

    return respond


# Serves the reading methods of API v1 over gRPC, for its official client; the others are refused.


class ReadingService:
    """Answers the methods of v1 by a service of v2."""

    version = "v1"

    def __init__(self, service: Service) -> None:
        self._service = service
        self._responses = {rpc.name: rpc.response for rpc in rpcs(self.version)}

    async def call(self, method: str, request: Message) -> Message:
        """Return the response to a request; raises `ApiError` alone."""
        fields = await self._fields(method, request)
        return ParseDict(fields, self._responses[method](), ignore_unknown_fields=True)

    async def _fields(self, method: str, request: Any) -> dict[str, Any]:
        if method in SAME:
            newer = getattr(tpu_v2, f"{method}Request").pb()()
            return MessageToDict(await self._service.call(method, ParseDict(MessageToDict(request), newer)))
        if method not in PATHS:
            raise api_error("old_version", call=method)
        path = PATHS[method].format(request=request)
        fields = await api_v1.respond(self._service, "GET", path)
        if fields is None:
            raise api_error("bad_name", name=path.removeprefix("/v1/"))
        return dict(fields)
