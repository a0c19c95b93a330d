"""The Cloud TPU API over REST: v2, v2alpha1, and under /v1 what clients still ask for there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from google.protobuf import json_format

from tpuctl.sim.tpu import version_one
from tpuctl.sim.tpu.http_rules import Route, routes
from tpuctl.sim.tpu.service import MODULES, Service
from tpuctl.sim.world import Code, Problem, Status, World, problem

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
"""What the official client adds to `$alt` to get enums as numbers."""


def application(world: World) -> web.Application:
    """Return the REST server of a world."""
    app = web.Application()
    services = {version: Service(world, version) for version in MODULES}
    app.router.add_route("*", "/{path:.*}", _handler(services, routes()))
    return app


def _handler(
    services: dict[str, Service], table: list[Route]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            old = await version_one.answer(services["v2"], request.method, request.path)
            if old is not None:
                return web.json_response(old)
            answer = await _answer(services, table, request)
        except Problem as failure:
            return _error(failure.status)
        numbers = ENUMS_AS_NUMBERS in request.query.get("$alt", "")
        return web.json_response(json_format.MessageToDict(answer, use_integers_for_enums=numbers))

    return handle


async def _answer(services: dict[str, Service], table: list[Route], request: web.Request) -> Any:
    for route in table:
        match = route.path.fullmatch(request.path) if route.verb == request.method else None
        if match:
            query = {key: request.query.getall(key) for key in request.query}
            message = route.message(match.groupdict(), query, await request.read())
            return await services[route.version].call(route.method, message)
    raise problem("no_route", verb=request.method, path=request.path)


def _error(status: Status) -> web.Response:
    """Google's JSON form of an error."""
    code = Code(status.code)
    http = HTTP_STATUS.get(code, 500)
    error: dict[str, Any] = {"code": http, "message": status.message, "status": code.name}
    if status.details:
        error["details"] = list(status.details)
    return web.json_response({"error": error}, status=http)
