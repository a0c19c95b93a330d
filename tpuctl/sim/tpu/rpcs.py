"""Reads the table of RPCs from the official client, since proto-plus keeps no service descriptors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import grpc
from google.cloud.location import locations_pb2
from google.cloud.tpu_v1.services.tpu.transports import TpuGrpcTransport as OldGrpcTransport
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport as AlphaGrpcTransport
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message


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
