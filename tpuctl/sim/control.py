"""The control door of a running simulator: faults in and out, for whoever holds the token in its folder."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from tpuctl.errors import NotFoundError, TpuctlError, UsageError
from tpuctl.faults import Request, Scenario
from tpuctl.faults import request as checked_request
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.state.private_file import write_private
from tpuctl.simulator_folder import SimulatorFolder

FAULTS = "/v1/faults"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What is sent to add faults: one, or a scenario's under its name."""

    faults: list[Request]
    scenario: str | None = None


class Control:
    """The door of one simulator; `publish` tells its users where it is."""

    def __init__(self, faults: FaultRegistry) -> None:
        self._faults = faults
        self._token = secrets.token_urlsafe(32)

    def application(self) -> web.Application:
        """Return the application that answers."""
        application = web.Application(middlewares=[self._guard])
        application.router.add_get(FAULTS, self._list)
        application.router.add_post(FAULTS, self._add)
        application.router.add_delete(FAULTS, self._clear)
        application.router.add_delete(f"{FAULTS}/{{id}}", self._remove)
        return application

    def publish(self, folder: Path, url: str) -> None:
        """Write where the door is, and its token, readable by this user alone."""
        content = json.dumps({"url": url, "token": self._token})
        write_private(SimulatorFolder(folder).control, content.encode())

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return web.json_response({"message": "The token is wrong."}, status=401)
        try:
            return await handler(request)
        except TpuctlError as error:
            status = 404 if isinstance(error, NotFoundError) else 400
            return web.json_response({"message": error.message, "hint": error.hint}, status=status)

    async def _list(self, _: web.Request) -> web.Response:
        return self._shown([fault.id for fault in self._faults.all()])

    async def _add(self, asked: web.Request) -> web.Response:
        try:
            sent = msgspec.json.decode(await asked.read(), type=Asked)
        except msgspec.DecodeError as error:
            raise UsageError(f"What was sent is no list of faults: {error}.") from error
        checked = [checked_request(one.kind, one.options) for one in sent.faults]
        if sent.scenario is not None:
            added = self._faults.load(Scenario(sent.scenario, tuple(checked)))
        else:
            added = [self._faults.add(one, origin="command") for one in checked]
        return self._shown([fault.id for fault in added])

    async def _remove(self, asked: web.Request) -> web.Response:
        self._faults.remove(asked.match_info["id"])
        return web.json_response({})

    async def _clear(self, _: web.Request) -> web.Response:
        self._faults.clear()
        return web.json_response({})

    def _shown(self, identifiers: list[str]) -> web.Response:
        now = self._faults.clock()
        faults = [fault.as_json(now) for fault in self._faults.all() if fault.id in identifiers]
        return web.json_response({"faults": faults})
