"""Serves the reading methods of API v1 over gRPC, for its official client; the others are refused."""

from __future__ import annotations

from typing import Any

from google.cloud import tpu_v2
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from tpuctl.sim.tpu import api_v1
from tpuctl.sim.tpu.rpcs import rpcs
from tpuctl.sim.tpu.service import Service
from tpuctl.sim.world import api_error

PATHS = {
    "GetNode": "/v1/{request.name}",
    "ListNodes": "/v1/{request.parent}/nodes",
    "GetTensorFlowVersion": "/v1/{request.name}",
    "ListTensorFlowVersions": "/v1/{request.parent}/tensorflowVersions",
}
"""Methods that v1 has differently -> their path of REST."""
SAME = ("GetAcceleratorType", "ListAcceleratorTypes")
"""Methods that v2 has, too, with more fields in their answers."""


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
