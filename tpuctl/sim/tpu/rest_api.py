"""Serves the Cloud TPU API over REST: v2, v2alpha1, and the paths under /v1 that clients still use."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from functools import cache
from typing import Any

from aiohttp import web
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.tpu import api_v1
from tpuctl.sim.tpu.grpc_api import MIXINS, rpcs
from tpuctl.sim.tpu.http_rules import Route, routes
from tpuctl.sim.tpu.service import MODULES, Service
from tpuctl.sim.world import ApiError, Code, Status, World, api_error
from tpuctl.sim.world.resources import MessageFields

PATH = "/$discovery/rest"
DEFAULT_VERSION = "v2"
"""Of a request without `?version=`."""
HOST = "https://tpu.googleapis.com/"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
VARIABLE = re.compile(r"\{([\w.]+)=([^}]+)\}")
STANDARD = {"GET": "get", "PATCH": "patch", "DELETE": "delete"}
"""Verb -> the name of the method on a resource; on a collection they are `list` and `create`."""
SCALARS = {
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_INT32: "integer",
    FieldDescriptor.TYPE_UINT32: "integer",
    FieldDescriptor.TYPE_MESSAGE: "object",
}
"""Type of a field -> that of JSON; others, 64-bit numbers and enums among them, are strings."""
HTTP_STATUS = {
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}
"""google/rpc/code.proto; every other code is 500."""

ENUMS_AS_NUMBERS = "enum-encoding=int"
"""The official client adds it to `$alt` to get enums as numbers."""


def application(world: World) -> web.Application:
    """Return the REST server of a world."""
    app = web.Application()
    services = {version: Service(world, version) for version in MODULES}
    app.router.add_route("*", "/{path:.*}", _handler(services, routes(), world))

    async def date(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = formatdate(world.now(), usegmt=True)

    app.on_response_prepare.append(date)
    return app


def _handler(
    services: dict[str, Service], table: Sequence[Route], world: World
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            if request.path == PATH:
                return web.json_response(_description(request.query.get("version")))
            body = await api_v1.respond(services["v2"], request.method, request.path)
            if body is not None:
                return web.json_response(body)
            message = await _respond(services, table, request)
        except ApiError as failure:
            return _error_response(failure.status)
        numbers = ENUMS_AS_NUMBERS in request.query.get("$alt", "")
        answer: JsonObject = MessageToDict(message, use_integers_for_enums=numbers)
        if request.path.startswith("/v2/"):
            add_to(answer, world)
        return web.json_response(answer)

    return handle


def _description(version: str | None) -> JsonObject:
    """Return the discovery document of a version; raises NOT_FOUND for another one."""
    if version == "v1":
        return api_v1.description()
    if version not in (None, *MODULES):
        raise api_error("no_route", verb="GET", path=f"{PATH}?version={version}")
    return document(version or DEFAULT_VERSION)


async def _respond(services: dict[str, Service], table: Sequence[Route], request: web.Request) -> Message:
    for route in table:
        match = route.path.fullmatch(request.path) if route.verb == request.method else None
        if match:
            query = {key: request.query.getall(key) for key in request.query}
            message = route.message(match.groupdict(), query, await request.read())
            return await services[route.version].call(route.method, message)
    raise api_error("no_route", verb=request.method, path=request.path)


def _error_response(status: Status) -> web.Response:
    """Return an error in Google's JSON form."""
    code = Code(status.code)
    http = HTTP_STATUS.get(code, 500)
    error: MessageFields = {"code": http, "message": status.message, "status": code.name}
    if status.details:
        error["details"] = list(status.details)
    return web.json_response({"error": error}, status=http)


# Adds announced maintenance to nodes in v2's JSON: the live v2 has it, this client's messages do not.


def add_to(answer: JsonObject, world: World) -> None:
    """Add `upcomingMaintenance` to an answer that is a node, or to each of its nodes, if announced."""
    listed = answer.get("nodes", [answer])
    for node in listed if isinstance(listed, list) else ():
        name = str(node.get("name", ""))
        maintenance = world.nodes.get(name).maintenance if world.nodes.has(name) else None
        if maintenance:
            node["upcomingMaintenance"] = dict(maintenance)


# Describes the REST API as Google's discovery service does, for clients that build their methods from it.
#
# The format: https://developers.google.com/discovery/v1/reference/apis. Everything comes from the HTTP rules
# and messages of the official client; descriptions for people are left out.


@cache
def document(version: str) -> JsonObject:
    """Return the description of `v2` or `v2alpha1`."""
    responses = {rpc.name: rpc.response for rpc in [*rpcs(version), *MIXINS]}
    resources: JsonObject = {}
    schemas: JsonObject = {}
    for route in routes():
        if route.version == version:
            _add(resources, route, responses[route.method], version)
            response: Descriptor = responses[route.method].DESCRIPTOR  # type: ignore[assignment]
            for message in (_body(route), response):
                schemas[message.name] = _schema(message)
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": f"tpu:{version}",
        "name": "tpu",
        "version": version,
        "protocol": "rest",
        "rootUrl": HOST,
        "servicePath": "",
        "baseUrl": HOST,
        "batchPath": "batch",
        "auth": {"oauth2": {"scopes": {SCOPE: {}}}},
        "schemas": schemas,
        "resources": resources,
    }


def _add(resources: JsonObject, route: Route, response: type[Message], version: str) -> None:
    """Add a method to the tree of resources."""
    collections, name = _place(route)
    level: Any = {"resources": resources}
    for collection in collections:
        level = level.setdefault("resources", {}).setdefault(collection, {})
    level.setdefault("methods", {})[name] = _method(route, response, [*collections, name], version)


def _place(route: Route) -> tuple[list[str], str]:
    """`/v2/{name=projects/*/locations/*/nodes/*}:stop` -> projects, locations, nodes, and `stop`."""
    path, _, custom = VARIABLE.sub(r"\2", route.uri).removeprefix("/v2/").partition(":")
    parts = path.split("/")
    if custom or parts[-1] == "*":
        return parts[::2], custom or STANDARD[route.verb]
    return parts[::2], "create" if route.verb == "POST" else "list"


def _method(route: Route, response: type[Message], place: list[str], version: str) -> JsonObject:
    variable = VARIABLE.search(route.uri)
    assert variable is not None, "every method is about a resource or a collection of one"
    name = variable[1].rpartition(".")[2]
    pattern = f"^{variable[2].replace('*', '[^/]+')}$"
    resource: JsonObject = {"location": "path", "pattern": pattern, "required": True, "type": "string"}
    described: JsonObject = {
        "id": ".".join(["tpu", *place]),
        "httpMethod": route.verb,
        "path": VARIABLE.sub(f"{{+{name}}}", route.uri).replace("/v2/", f"{version}/", 1),
        "parameters": {name: resource, **_query(route, variable[1])},
        "parameterOrder": [name],
        "response": {"$ref": response.DESCRIPTOR.name},
        "scopes": [SCOPE],
    }
    if route.body:
        described["request"] = {"$ref": _body(route).name}
    return described


def _query(route: Route, variable: str) -> JsonObject:
    """The fields of the request that are neither in its path nor in its body."""
    elsewhere = {variable.partition(".")[0], route.body}
    fields = () if route.body == "*" else route.request.DESCRIPTOR.fields
    return {
        field.camelcase_name: {"location": "query", **_type(field)}  # type: ignore[arg-type]
        for field in fields
        if field.name not in elsewhere
    }


def _body(route: Route) -> Descriptor:
    """The message that is the body; the request itself for a method without one."""
    descriptor: Descriptor = route.request.DESCRIPTOR  # type: ignore[assignment]  # two classes for one
    if route.body in ("", "*"):
        return descriptor
    body = descriptor.fields_by_name[route.body].message_type
    assert body is not None, "the body is a message"
    return body


def _schema(message: Descriptor) -> JsonObject:
    """The fields of a message, as far as clients look: `nextPageToken` makes a list one of pages."""
    properties: JsonObject = {field.camelcase_name: _type(field) for field in message.fields}
    return {"id": message.name, "type": "object", "properties": properties}


def _type(field: FieldDescriptor) -> JsonObject:
    if field.message_type and field.message_type.full_name == "google.protobuf.FieldMask":
        return {"type": "string", "format": "google-fieldmask"}
    kind = SCALARS.get(field.type, "string")
    return {"type": "array", "items": {"type": kind}} if field.is_repeated else {"type": kind}
