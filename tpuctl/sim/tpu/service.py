"""Finds the function of each method of the API, for gRPC and for REST, and passes every call to it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from google.cloud import tpu_v2, tpu_v2alpha1
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim.tpu.messages import Messages
from tpuctl.sim.tpu.methods.group import Method
from tpuctl.sim.tpu.methods.locations import LocationMethods
from tpuctl.sim.tpu.methods.nodes import NodeMethods
from tpuctl.sim.tpu.methods.operations import OperationMethods
from tpuctl.sim.tpu.methods.queued_resources import QueuedResourceMethods
from tpuctl.sim.tpu.permissions import authorize
from tpuctl.sim.world import ApiError, World, api_error

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
