"""Defines the records of a node's hosts, which the world and the host pool exchange.

- Serves the control API of a running simulator: lists, adds and removes faults; needs its token.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from tpuctl.errors import NotFoundError, TpuctlError, UsageError
from tpuctl.faults import Request, Scenario
from tpuctl.faults import request as checked_request
from tpuctl.sim import resource_names
from tpuctl.sim.access import Secret
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.state import write_private
from tpuctl.sim.token_server import service_account
from tpuctl.simulator_folder import SimulatorFolder

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL when a host ends: what Compute Engine gives a preempted VM.

https://cloud.google.com/compute/docs/instances/preemptible#preemption-process
"""

DEFAULT_ACCOUNT = "default"
"""The name by which a node can ask for the project's default service account."""


@dataclass(frozen=True)
class Host:
    """One host (worker) of a node."""

    node: str
    """Full name, `projects/P/locations/Z/nodes/N`."""
    node_uid: str
    """The node's id: never used again, unlike its name."""
    worker: int
    address: str
    """The IP address in the node's network endpoints, in 127.64.0.0/10."""
    hostname: str
    """`t1v-n-<8 hex>-w-<worker>`"""
    accelerator_type: str
    runtime_version: str
    peers: tuple[str, ...]
    """Addresses of all hosts of the node, in worker order."""
    preemptible: bool
    slices: tuple[str, ...] = ()
    """Addresses of worker 0 of each slice of a multislice request; empty for a single slice."""
    named_account: str = ""
    """The service account that the node names; '' for the project's default one."""
    external: bool = True
    """Whether its address can be reached from outside of the simulated network."""

    @property
    def project(self) -> str:
        return resource_names.parse(self.node).project

    @property
    def service_account(self) -> str:
        """The address of the service account as which its programs call Google's APIs."""
        return self.named_account or service_account(self.project)

    @property
    def zone(self) -> str:
        return resource_names.parse(self.node).zone

    @property
    def node_id(self) -> str:
        return resource_names.parse(self.node).id


@dataclass(frozen=True)
class GuestAttribute:
    """One guest attribute of a host, as GetGuestAttributes returns it."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True)
class Notices:
    """The notices that the host's metadata server shows."""

    preempted: bool = False
    maintenance_event: str = "NONE"


class Hosts(Protocol):
    """Runs the hosts: the world calls it when a node is created, stopped, deleted or preempted."""

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Start every host of a node, also again after a restart; idempotent. `metadata` is the node's."""

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool, grace: float = GRACE) -> None:
        """End the hosts' processes and close their servers; without `keep_disk` delete their files.

        A process that goes on after SIGTERM is killed `grace` seconds later.
        """

    async def update_metadata(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Replace the node's metadata on its hosts, `ssh-keys` included."""

    async def announce(self, hosts: Sequence[Host], notices: Notices) -> None:
        """Show a preemption or maintenance notice on the hosts' metadata servers; nothing is stopped."""

    def guest_attributes(self, host: Host) -> list[GuestAttribute]:
        """Return the attributes that the host has written: `hostkeys/ssh-ed25519`, `guestInventory/...`."""


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
