"""Serves the Cloud TPU API over REST: v2, v2alpha1, and the paths under /v1 that clients still use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.tpu import api_v1, discovery, upcoming_maintenance
from tpuctl.sim.tpu.http_rules import Route, routes
from tpuctl.sim.tpu.service import MODULES, Service
from tpuctl.sim.world import ApiError, Code, Status, World, api_error
from tpuctl.sim.world.api_json import MessageFields

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
            if request.path == discovery.PATH:
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
            upcoming_maintenance.add_to(answer, world)
        return web.json_response(answer)

    return handle


def _description(version: str | None) -> JsonObject:
    """Return the discovery document of a version; raises NOT_FOUND for another one."""
    if version == "v1":
        return api_v1.description()
    if version not in (None, *MODULES):
        raise api_error("no_route", verb="GET", path=f"{discovery.PATH}?version={version}")
    return discovery.document(version or discovery.DEFAULT_VERSION)


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
