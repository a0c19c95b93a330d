"""Finds the host and port that a client names, and whether it may have a tunnel to them.

- The codes with which the relay closes a WebSocket, as in IAP Desktop's `SshRelayConstants.cs`.

  Users have reported the reasons of 4003, 4033 and 4047 (such as hashicorp/packer-plugin-googlecompute#195
  and google-github-actions/ssh-compute#44). The other reasons are ours.
- Applies faults to one connection of a client to the relay: refused, cut, silent or slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web

from tpuctl.sim.faults import BandwidthLimits, Fault, FaultRegistry, reset, while_in_force
from tpuctl.sim.iam.callers import current_caller
from tpuctl.sim.iam.enforcement import Resource
from tpuctl.sim.records import Host
from tpuctl.sim.token_server import project_number

UNKNOWN = 4000
SESSION_UNKNOWN = 4001
SESSION_IN_USE = 4002
BACKEND_UNREACHABLE = 4003
REAUTHENTICATION_REQUIRED = 4004
BAD_ACK = 4005
INVALID_ACK = 4006
INVALID_OPCODE = 4007
INVALID_TAG = 4008
WRITE_FAILED = 4009
READ_FAILED = 4010
INVALID_DATA = 4013
NOT_AUTHORIZED = 4033
LOOKUP_FAILED = 4047
REWIND_FAILED = 4074

REASONS = {
    UNKNOWN: "unknown error",
    SESSION_UNKNOWN: "session not found",
    SESSION_IN_USE: "session in use",
    BACKEND_UNREACHABLE: "failed to connect to backend",
    REAUTHENTICATION_REQUIRED: "reauthentication required",
    BAD_ACK: "ack is lower than an earlier one",
    INVALID_ACK: "ack is higher than the bytes sent",
    INVALID_OPCODE: "message is not binary",
    INVALID_TAG: "unknown tag",
    WRITE_FAILED: "failed to write to backend",
    READ_FAILED: "backend closed the connection",
    INVALID_DATA: "data frame is too long",
    NOT_AUTHORIZED: "not authorized",
    LOOKUP_FAILED: "Failed to lookup instance",
    REWIND_FAILED: "failed to rewind",
}

RESUMABLE = (REAUTHENTICATION_REQUIRED, SESSION_IN_USE)
"""Codes after which the tunnel is still there: for the same client with another token, or for another."""


class Closing(Exception):
    """The relay closes the WebSocket with a code, 0 for a reset; the tunnel may be `resumable`."""

    def __init__(self, code: int, *, resumable: bool | None = None) -> None:
        self.code = code
        self.reason = REASONS.get(code, "")
        self.resumable = code in RESUMABLE if resumable is None else resumable
        super().__init__(self.reason)


PERMISSION = "iap.tunnelInstances.accessViaIAP"
TYPE = "iap.googleapis.com/TunnelInstance"
INTERFACE = "nic0"

CONNECT_TIMEOUT = 10.0
"""Seconds to connect to the port of a host."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Target:
    """What a client wants to reach."""

    project: str
    zone: str
    instance: str
    """The host's name, `t1v-n-<8 hex>-w-<worker>`."""
    port: int

    @property
    def name(self) -> str:
        """The instance's full name."""
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.instance}"


def target_of(query: Mapping[str, str]) -> Target:
    """Return what the parameters of a request name; raises the HTTP error 400."""
    missing = [name for name in ("project", "zone", "instance", "port") if not query.get(name)]
    if missing:
        raise web.HTTPBadRequest(text=f"The request has no {', '.join(missing)}.")
    port = query["port"]
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise web.HTTPBadRequest(text="port has to be a number from 1 to 65535.")
    if query.get("interface", INTERFACE) != INTERFACE:
        raise web.HTTPBadRequest(text=f"interface has to be {INTERFACE}.")
    return Target(query["project"], query["zone"], query["instance"], int(port))


@dataclass(frozen=True)
class Targets:
    """The hosts of all nodes, and how to connect to a port of one from inside its network."""

    hosts: Callable[[], Iterable[Host]]
    connect: Callable[[Host, int], Awaitable[Streams]]

    def authorize(self, target: Target) -> None:
        """Raise Closing unless the caller may have a tunnel."""
        caller = current_caller()
        number = project_number(target.project)
        name = f"projects/{number}/iap_tunnel/zones/{target.zone}/instances/{target.instance}"
        if caller and not caller.may(PERMISSION, Resource(target.project, name, TYPE, port=target.port)):
            raise Closing(NOT_AUTHORIZED)

    def find(self, target: Target) -> Host | None:
        """Return the host that a client names, if there is one."""
        named = (target.project, target.zone, target.instance)
        return next(
            (host for host in self.hosts() if (host.project, host.zone, host.hostname) == named), None
        )

    async def open(self, host: Host | None, port: int) -> Streams:
        """Connect to a port of a host; raises Closing."""
        if host is None:
            raise Closing(LOOKUP_FAILED)
        try:
            return await asyncio.wait_for(self.connect(host, port), CONNECT_TIMEOUT)
        except OSError:
            raise Closing(BACKEND_UNREACHABLE) from None


CARRIED = ("iap-cut", "iap-stall", "iap-slow")
"""Kinds that take effect on the bytes of a connection, also of one that was open before."""
STATUSES = {
    kind.status_code: kind for kind in (web.HTTPUnauthorized, web.HTTPForbidden, web.HTTPServiceUnavailable)
}
"""HTTP status of a refusal -> its error."""


class TunnelFaults:
    """The faults that fire on one connection, whose `request` says `connect` or `reconnect`."""

    def __init__(
        self, registry: FaultRegistry, limits: BandwidthLimits, request: web.Request, host: Host | None
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._request = request
        self._facts = _facts(request, host)
        self._resource = f"{host.node}/workers/{host.worker}" if host else ""
        self._refusal = 0
        self._tried: set[str] = set()
        self._faults: list[Fault] = []
        self._silences: dict[str, asyncio.Task[None]] = {}
        self._carried = 0
        self._changed = asyncio.Event()

    def refuse(self) -> None:
        """Raise the HTTP error of a request that is answered with a status."""
        refusals = (fault for fault in self._registry.in_force("iap-refused") if fault.matches(self._facts))
        code = next((int(fault["code"]) for fault in refusals if self._fires(fault)), 0)
        if code in STATUSES:
            raise STATUSES[code]
        self._refusal = code

    async def open(self) -> None:
        """Wait before the connection is open; raises Closing if it is refused."""
        if self._refusal:
            raise Closing(self._refusal)
        self._look()
        for fault in self._faults:
            if fault.kind == "iap-slow":
                await asyncio.sleep(fault["latency"])

    async def carry(self, size: int, *, up: bool) -> None:
        """Wait before `size` bytes are passed on; without end once the connection is to be cut."""
        self._look()
        for fault in self._faults:
            if fault.kind == "iap-stall" and self._carried >= fault["at"]:
                await asyncio.shield(self._silence(fault))
            elif fault.kind == "iap-slow":
                await self._limits.send(fault, size, up=up)
        if self._cut():
            self._changed.set()
            await asyncio.get_running_loop().create_future()
        self._carried += size

    async def watch(self) -> bool:
        """Wait until the connection is to be cut, and cut it; raises Closing if that has a code."""
        loop = asyncio.get_running_loop()

        def on_change() -> None:
            loop.call_soon_threadsafe(self._changed.set)

        self._registry.add_listener(on_change)
        try:
            while True:
                self._look()
                if cut := self._cut():
                    return self._end(cut)
                await self._changed.wait()
                self._changed.clear()
        finally:
            self._registry.remove_listener(on_change)
            for silence in self._silences.values():
                silence.cancel()

    def _look(self) -> None:
        """Find the faults that match this connection, each once."""
        for fault in self._registry.in_force(*CARRIED):
            if fault.id not in self._tried and fault.matches(self._facts):
                self._tried.add(fault.id)
                if self._fires(fault):
                    self._faults.append(fault)
                    if fault.kind == "iap-stall" and not fault["at"]:
                        self._silence(fault)

    def _fires(self, fault: Fault) -> bool:
        return self._registry.fire_on(fault, self._resource, self._facts["request"], "iap")

    def _cut(self) -> Fault | None:
        cuts = (fault for fault in self._faults if fault.kind == "iap-cut")
        return next((fault for fault in cuts if self._carried >= fault["bytes"]), None)

    def _end(self, cut: Fault) -> bool:
        if cut["code"] or cut["lost"]:
            raise Closing(int(cut["code"] or 0), resumable=not cut["lost"])
        reset(self._request.transport)
        return False

    def _silence(self, fault: Fault) -> asyncio.Task[None]:
        """Return the task that ends when this connection may go on; not even a ping is answered before."""
        if fault.id not in self._silences:
            self._silences[fault.id] = asyncio.create_task(self._be_silent(fault))
        return self._silences[fault.id]

    async def _be_silent(self, fault: Fault) -> None:
        transport = self._request.transport
        if isinstance(transport, asyncio.Transport):
            transport.pause_reading()
        await while_in_force(self._registry, fault.id, fault["seconds"] or None)
        if isinstance(transport, asyncio.Transport) and not transport.is_closing():
            transport.resume_reading()


def _facts(request: web.Request, host: Host | None) -> dict[str, str]:
    facts = {"request": request.path.rpartition("/")[2], "node": ""}
    if host is None:
        named = {name: request.query[name] for name in ("project", "zone") if name in request.query}
        return facts | named
    return facts | {
        "project": host.project,
        "zone": host.zone,
        "node": host.node,
        "type": host.accelerator_type,
        "worker": str(host.worker),
    }
