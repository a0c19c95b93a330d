"""Finds the host and port that a client names, and whether it may have a tunnel to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web

from tpuctl.sim.accounts import project_number
from tpuctl.sim.iam.access import current_caller
from tpuctl.sim.iam.policies import Resource
from tpuctl.sim.iap.close_codes import BACKEND_UNREACHABLE, LOOKUP_FAILED, NOT_AUTHORIZED, Closing
from tpuctl.sim.records import Host

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
