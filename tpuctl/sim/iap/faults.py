"""Applies faults to one connection of a client to the relay: refused, cut, silent or slow."""

from __future__ import annotations

import asyncio

from aiohttp import web

from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.faults.bandwidth import BandwidthLimits
from tpuctl.sim.faults.resets import reset
from tpuctl.sim.faults.wait import while_in_force
from tpuctl.sim.iap.close_codes import Closing
from tpuctl.sim.records import Host

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
