"""Builds the answers that both APIs share: pages of a list, and errors in Google's JSON form."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.iam.callers import current_caller
from tpuctl.sim.iam.enforcement import Resource
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.token_server import project_number

Handler = Callable[[web.Request], Awaitable[web.Response]]
WebHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, *details: JsonObject) -> None:
        super().__init__(message)
        self.code = code
        self.details = details

    def response(self) -> web.Response:
        """Return the answer in Google's JSON form."""
        error = {"code": self.code, "message": str(self), "status": STATUS[self.code]}
        if self.details:
            error["details"] = list(self.details)
        return web.json_response({"error": error}, status=self.code)


@dataclass(frozen=True)
class Api:
    """One API: its name, as `gcloud services enable` takes it, and the faults that hold for it."""

    name: str
    faults: FaultRegistry

    def application(self, *routes: tuple[str, Handler]) -> web.Application:
        """Return the server of some paths, all GET; any other request is 404."""
        app = web.Application(middlewares=[_answer_refused])
        for path, handler in routes:
            app.router.add_get(path, handler)
        app.router.add_route("*", "/{path:.*}", _unknown)
        return app

    def require_enabled(self, project: str) -> None:
        """Answer 403 while a fault has the API off."""
        short = self.name.partition(".")[0]
        if not self.faults.fire("api-off", api=short, project=project, method=short):
            return
        number = project_number(project)
        page = f"https://console.developers.google.com/apis/api/{self.name}/overview?project={number}"
        raise RefusedError(
            403,
            f"{self.name} has not been used in project {number} before or it is disabled. Enable it by "
            f"visiting {page} then retry. If you enabled this API recently, wait a few minutes for the "
            "action to propagate to our systems and retry.",
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "SERVICE_DISABLED",
                "domain": "googleapis.com",
                "metadata": {"service": self.name, "consumer": f"projects/{number}"},
            },
        )


def authorize(permission: str, project: str) -> None:
    """Answer 403 unless the caller has a permission in a project; 401 to an anonymous caller."""
    caller = current_caller()
    if caller is None or caller.may(permission, Resource(project, f"projects/{project}")):
        return
    code = 403 if caller.member else 401
    raise RefusedError(code, f"Permission '{permission}' denied on resource 'projects/{project}'.")


def page_of(request: web.Request, name: str, items: Sequence[JsonObject], most: int) -> web.Response:
    """Return the page of a list that a request's `pageSize` and `pageToken` name, of `most` items at most."""
    size = _number(request, "pageSize", most) or most
    start = _start(request.query.get("pageToken", ""))
    stop = start + min(size, most)
    body: JsonObject = {name: list(items[start:stop])} if items[start:stop] else {}
    body["nextPageToken"] = base64.urlsafe_b64encode(str(stop).encode()).decode() if stop < len(items) else ""
    return web.json_response(body)


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()):
        raise RefusedError(400, f"Invalid value at '{name}' (TYPE_INT32), \"{text}\"")
    return int(text)


def _start(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token)) if token else 0
    except ValueError:
        raise RefusedError(400, "The page token is invalid.") from None


@web.middleware
async def _answer_refused(request: web.Request, handler: WebHandler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as refused:
        return refused.response()


async def _unknown(request: web.Request) -> web.Response:
    raise RefusedError(404, f"The simulator has no {request.method} {request.path}")
