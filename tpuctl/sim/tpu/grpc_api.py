"""Serves the Cloud TPU API over gRPC, by generic handlers for a `grpc.aio` server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, Protocol

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from tpuctl.sim.tpu.grpc_api_v1 import ReadingService
from tpuctl.sim.tpu.messages import status_message
from tpuctl.sim.tpu.rpcs import MIXINS, Rpc, rpcs
from tpuctl.sim.tpu.service import MODULES, Service
from tpuctl.sim.world import ApiError, World


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
