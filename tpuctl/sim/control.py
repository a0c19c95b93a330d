"""Serves the control API of a running simulator: lists, adds and removes faults; needs its token."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from tpuctl.errors import NotFoundError, TpuctlError, UsageError
from tpuctl.faults import Request, Scenario
from tpuctl.faults import request as checked_request
from tpuctl.sim.access.secret import Secret
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.state.private_file import write_private
from tpuctl.simulator_folder import SimulatorFolder

FAULTS = "/v1/faults"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AddFaults(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that adds faults: one, or those of a scenario under its name."""

    faults: list[Request]
    scenario: str | None = None


class ControlApi:
    """The API of one simulator; `publish` writes its address for clients."""

    def __init__(self, faults: FaultRegistry, secret: Secret) -> None:
        self._faults = faults
        self._secret = secret

    def application(self) -> web.Application:
        """Return the application that answers."""
        application = web.Application(middlewares=[self._guard])
        application.router.add_get(FAULTS, self._list)
        application.router.add_post(FAULTS, self._add)
        application.router.add_delete(FAULTS, self._clear)
        application.router.add_delete(f"{FAULTS}/{{id}}", self._remove)
        return application

    def publish(self, folder: Path, url: str) -> None:
        """Write the API's address and token, readable by this user alone."""
        content = json.dumps({"url": url, "token": self._secret.text})
        write_private(SimulatorFolder(folder).control, content.encode())

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._secret.allows(request.headers.get("Authorization", "")):
            return web.json_response({"message": "The token is wrong."}, status=401)
        try:
            return await handler(request)
        except TpuctlError as error:
            status = 404 if isinstance(error, NotFoundError) else 400
            return web.json_response({"message": error.message, "hint": error.hint}, status=status)

    async def _list(self, _: web.Request) -> web.Response:
        return self._response([fault.id for fault in self._faults.all()])

    async def _add(self, request: web.Request) -> web.Response:
        try:
            body = msgspec.json.decode(await request.read(), type=AddFaults)
        except msgspec.DecodeError as error:
            raise UsageError(f"The request is no list of faults: {error}.") from error
        requests = [checked_request(fault.kind, fault.options) for fault in body.faults]
        if body.scenario is not None:
            added = self._faults.load(Scenario(body.scenario, tuple(requests)))
        else:
            added = [self._faults.add(checked, origin="command") for checked in requests]
        return self._response([fault.id for fault in added])

    async def _remove(self, request: web.Request) -> web.Response:
        self._faults.remove(request.match_info["id"])
        return web.json_response({})

    async def _clear(self, _: web.Request) -> web.Response:
        self._faults.clear()
        return web.json_response({})

    def _response(self, identifiers: list[str]) -> web.Response:
        now = self._faults.clock()
        faults = [fault.as_json(now) for fault in self._faults.all() if fault.id in identifiers]
        return web.json_response({"faults": faults})
