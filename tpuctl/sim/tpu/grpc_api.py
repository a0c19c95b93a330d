"""Serves the Cloud TPU API over gRPC, by generic handlers for a `grpc.aio` server.

- Reads the table of RPCs from the official client, since proto-plus keeps no service descriptors.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, Protocol

import grpc
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.cloud.tpu_v1.services.tpu.transports import TpuGrpcTransport as OldGrpcTransport
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport as AlphaGrpcTransport
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from grpc_status import rpc_status

from tpuctl.sim.tpu import api_v1
from tpuctl.sim.tpu.messages import status_message
from tpuctl.sim.tpu.service import MODULES, Service
from tpuctl.sim.world import ApiError, World, api_error


@dataclass(frozen=True)
class Rpc:
    """One method of a service, with its plain protobuf message classes."""

    service: str
    name: str
    request: type[Message]
    response: type[Message]


MIXINS: tuple[Rpc, ...] = tuple(
    Rpc(service, name, request, response)
    for service, methods in {
        "google.longrunning.Operations": {
            "GetOperation": (operations_pb2.GetOperationRequest, operations_pb2.Operation),
            "ListOperations": (operations_pb2.ListOperationsRequest, operations_pb2.ListOperationsResponse),
            "WaitOperation": (operations_pb2.WaitOperationRequest, operations_pb2.Operation),
            "CancelOperation": (operations_pb2.CancelOperationRequest, empty_pb2.Empty),
            "DeleteOperation": (operations_pb2.DeleteOperationRequest, empty_pb2.Empty),
        },
        "google.cloud.location.Locations": {
            "GetLocation": (locations_pb2.GetLocationRequest, locations_pb2.Location),
            "ListLocations": (locations_pb2.ListLocationsRequest, locations_pb2.ListLocationsResponse),
        },
    }.items()
    for name, (request, response) in methods.items()
)
"""The services that every Google API shares."""


class _Transport(Protocol):
    """The attributes of the client's transport that are read and replaced here."""

    _logged_channel: grpc.Channel
    _stubs: dict[str, object]


TRANSPORTS: dict[str, type] = {"v1": OldGrpcTransport, "v2": TpuGrpcTransport, "v2alpha1": AlphaGrpcTransport}

Codec = Callable[..., object]
"""`Node.serialize`, `Operation.FromString`: a class method of a message."""


@cache
def rpcs(version: str) -> tuple[Rpc, ...]:
    """Return every RPC of a version of the API that its client's gRPC transport speaks."""
    own = []
    for path, (serializer, deserializer) in _prepared_methods(version).items():
        _, service, name = path.split("/")
        if service.startswith("google.cloud.tpu."):
            own.append(Rpc(service, name, _message_class(serializer), _message_class(deserializer)))
    return tuple(own)


def _prepared_methods(version: str) -> dict[str, tuple[Codec, Codec]]:
    """Return path -> serializer and deserializer of every stub that the client's transport prepares."""
    recorder = _Recorder()
    transport_class = TRANSPORTS[version]
    transport: _Transport = transport_class(channel=recorder)
    # the logging channel around ours looks a method up only when it is called, and stubs are cached
    transport._logged_channel = recorder
    transport._stubs.clear()
    for name, _ in inspect.getmembers(transport_class, lambda member: isinstance(member, property)):
        getattr(transport, name)
    return recorder.methods


class _Recorder(grpc.Channel):
    """A channel that connects nowhere and records the methods that a transport prepares on it."""

    def __init__(self) -> None:
        self.methods: dict[str, tuple[Codec, Codec]] = {}

    def unary_unary(  # type: ignore[override]  # a transport passes both, and no test calls the stub
        self, method: str, request_serializer: Codec, response_deserializer: Codec, **_: object
    ) -> Callable[..., None]:
        self.methods[method] = (request_serializer, response_deserializer)
        return lambda *_, **__: None

    def _no_streams(self, *_: object, **__: object) -> grpc.UnaryStreamMultiCallable[Message, Message]:
        raise NotImplementedError("the Cloud TPU API has no streaming methods")

    unary_stream = stream_unary = stream_stream = _no_streams  # type: ignore[assignment]

    def subscribe(self, *_: object, **__: object) -> None: ...

    def unsubscribe(self, *_: object, **__: object) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> _Recorder:
        return self

    def __exit__(self, *_: object) -> None: ...


def _message_class(codec: Codec) -> type[Message]:
    """Return the plain protobuf class of a serializer or deserializer."""
    owner = codec.__self__  # type: ignore[attr-defined]  # both are class methods
    message_class: type[Message] = owner.pb() if hasattr(owner, "pb") else owner
    return message_class


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
