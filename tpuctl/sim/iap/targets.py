"""Finds the host and port that a client names, and whether it may have a tunnel to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web

from tpuctl.sim.accounts import project_number
from tpuctl.sim.iam.access import current_caller
from tpuctl.sim.iam.policies import Resource
from tpuctl.sim.iap.close_codes import BACKEND_UNREACHABLE, LOOKUP_FAILED, NOT_AUTHORIZED, Closing
from tpuctl.sim.records import Host

PERMISSION = "iap.tunnelInstances.accessViaIAP"
TYPE = "iap.googleapis.com/TunnelInstance"
SSH_PORT = 22
"""Where clients expect SSH; simulated hosts listen on ports that need no root."""
INTERFACE = "nic0"

Address = tuple[str, int]


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
    """The hosts of all nodes, and the address of the SSH server of one that is up."""

    hosts: Callable[[], Iterable[Host]]
    ssh_address: Callable[[Host], Address | None]

    def authorize(self, target: Target) -> None:
        """Raise Closing unless the caller may have a tunnel."""
        caller = current_caller()
        number = project_number(target.project)
        name = f"projects/{number}/iap_tunnel/zones/{target.zone}/instances/{target.instance}"
        if caller and not caller.may(PERMISSION, Resource(target.project, name, TYPE)):
            raise Closing(NOT_AUTHORIZED)

    def address(self, target: Target) -> Address:
        """Return where to connect to; raises Closing."""
        host = self._host(target)
        if host is None:
            raise Closing(LOOKUP_FAILED)
        address = self.ssh_address(host)
        if address is None:
            raise Closing(BACKEND_UNREACHABLE)
        return address if target.port == SSH_PORT else (address[0], target.port)

    def _host(self, target: Target) -> Host | None:
        named = (target.project, target.zone, target.instance)
        return next(
            (host for host in self.hosts() if (host.project, host.zone, host.hostname) == named), None
        )
