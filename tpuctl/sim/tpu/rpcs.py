"""The table of RPCs, read off the official client: proto-plus keeps no service descriptors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.cloud.location import locations_pb2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport as AlphaGrpcTransport
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2


@dataclass(frozen=True)
class Rpc:
    """One method of a service, with its plain protobuf message classes."""

    service: str
    name: str
    request: Any
    response: Any


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


TRANSPORTS: dict[str, type] = {"v2": TpuGrpcTransport, "v2alpha1": AlphaGrpcTransport}


def rpcs(version: str) -> list[Rpc]:
    """Return every RPC of a version of the API that its client's gRPC transport speaks."""
    own = []
    for path, (serialize, deserialize) in _recorded(TRANSPORTS[version]).items():
        _, service, name = path.split("/")
        if service.startswith("google.cloud.tpu."):
            own.append(Rpc(service, name, _message_class(serialize), _message_class(deserialize)))
    return own


def _recorded(transport_class: Any) -> dict[str, tuple[Any, Any]]:
    """Return path -> serializer and deserializer of everything that the transport prepares a stub for."""
    recorder = _Recorder()
    transport = transport_class(channel=recorder)
    # the logging channel around ours asks for a method only when it is called, and stubs are cached
    transport._logged_channel = recorder
    transport._stubs.clear()
    for name, _ in inspect.getmembers(transport_class, lambda member: isinstance(member, property)):
        getattr(transport, name)
    return recorder.methods


class _Recorder(grpc.Channel):
    """A channel that connects nowhere and notes the methods that a transport prepares on it."""

    def __init__(self) -> None:
        self.methods: dict[str, tuple[Any, Any]] = {}

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        *_: Any,
        **__: Any,
    ) -> Any:
        self.methods[method] = (request_serializer, response_deserializer)
        return lambda *_, **__: None

    def _no_streams(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("the Cloud TPU API has no streaming methods")

    unary_stream = stream_unary = stream_stream = _no_streams

    def subscribe(self, *_: Any, **__: Any) -> None: ...

    def unsubscribe(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> _Recorder:
        return self

    def __exit__(self, *_: object) -> None: ...


def _message_class(coder: Callable[..., Any]) -> Any:
    """The plain protobuf class behind `Node.serialize` or `Operation.FromString`."""
    owner = coder.__self__  # type: ignore[attr-defined]  # both are class methods
    return owner.pb() if hasattr(owner, "pb") else owner
