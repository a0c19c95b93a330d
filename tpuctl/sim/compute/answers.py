"""Builds the answers of Compute Engine that its resources share: errors, operations, and 403 by role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aiohttp import web

from tpuctl.sim.compute.operations import Operation
from tpuctl.sim.iam.callers import current_caller
from tpuctl.sim.iam.enforcement import Resource
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.token_server import project_number, service_account, stable_number

VERSIONS = "v1|beta|alpha"
PROJECT = f"/compute/{{version:{VERSIONS}}}/projects/{{project}}"
REASONS = {
    400: "invalid",
    401: "required",
    403: "forbidden",
    404: "notFound",
    409: "alreadyExists",
    412: "conditionNotMet",
}

WebHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def authorize(permission: str, project: str) -> None:
    """Answer 403 unless the caller has a permission in a project; 401 to an anonymous caller."""
    caller = current_caller()
    if caller is None or caller.may(permission, Resource(project, f"projects/{project}")):
        return
    raise Denied(f"Required '{permission}' permission for 'projects/{project}'", known=bool(caller.member))


class Denied(Exception):
    """The caller may not call a method."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.status = 403 if known else 401


@web.middleware
async def answer_denied(request: web.Request, handler: WebHandler) -> web.StreamResponse:
    """Answer 401 or 403 where a method has denied its caller."""
    try:
        return await handler(request)
    except Denied as denied:
        return error(denied.status, str(denied))


def operation_resource(operation: Operation, url: str) -> JsonObject:
    """Return an operation of the API at `url`."""
    time = datetime.fromtimestamp(operation.time, UTC).isoformat(timespec="milliseconds")
    project = f"{url}/projects/{operation.project}"
    return {
        "kind": "compute#operation",
        "id": str(stable_number(operation.name)),
        "name": operation.id,
        "operationType": operation.kind,
        "status": "DONE",
        "progress": 100,
        "user": service_account(operation.project),
        "insertTime": time,
        "startTime": time,
        "endTime": time,
        "targetId": str(project_number(operation.project)),
        "targetLink": f"{project}{operation.target}",
        "selfLink": f"{project}/global/operations/{operation.id}",
    }


def base(request: web.Request) -> str:
    """Return the URL of the API that a request was sent to."""
    return f"{request.scheme}://{request.host}/compute/{request.match_info['version']}"


def not_found(resource: str) -> web.Response:
    """Return 404 for a resource, in Google's words."""
    return error(404, f"The resource '{resource}' was not found")


def error(status: int, message: str) -> web.Response:
    """Return an error in Compute Engine's JSON form."""
    reason = {"message": message, "domain": "global", "reason": REASONS[status]}
    error = {"code": status, "message": message, "errors": [reason]}
    return web.json_response({"error": error}, status=status)
