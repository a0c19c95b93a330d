"""The simulator as a whole: every service on a free loopback port, one state folder, endpoints in a file."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web

from tpuctl.errors import DeadlineError, StateError
from tpuctl.polling import Backoff, poll
from tpuctl.sim.client_environment import Workstation
from tpuctl.sim.clock import Clock
from tpuctl.sim.compute import rest_front as compute_front
from tpuctl.sim.compute.operations import Operations
from tpuctl.sim.compute.projects import Projects
from tpuctl.sim.control import Control
from tpuctl.sim.events import Events
from tpuctl.sim.fault_executor import Director
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.server import RUNNER_OPTIONS, GcsServer
from tpuctl.sim.host_environment import surroundings
from tpuctl.sim.hosts.isolation import Offline
from tpuctl.sim.hosts.pool import HostPool
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.ports import LOOPBACK, Ports, bound
from tpuctl.sim.network.proxy import ConnectProxy, Refuse, Route, Serve, Tunnel
from tpuctl.sim.network.tls_mux import TlsMux
from tpuctl.sim.settings import PASS, REFUSE, profile
from tpuctl.sim.state.database import Database
from tpuctl.sim.state.private_file import write_private
from tpuctl.sim.tpu import grpc_front, rest_front
from tpuctl.sim.world import Node, World
from tpuctl.simulator_folder import SimulatorFolder

PROJECT = "sim-project"
BUCKET = "sim-project-tpuctl"
LOCATION = "EUROPE-WEST4"
FAULTS = "faults.json"
TPU_API = "tpu.googleapis.com"
BACKLOG = 1024
LOOK = 0.5
"""Seconds within which who only looks at the lock of a folder has let it go again."""

KEY_DELAYS = {"real": 5.0}
"""Speed -> seconds until hosts accept an SSH key that was added to them; 0 for others."""

OUTSIDE: dict[str, dict[str, Route]] = {
    PASS: {},
    REFUSE: {"*": Refuse("outside the simulator, which was started with --egress refuse")},
}
"""What becomes of hosts of the real network, after all those that are known by name."""

GRPC_OPTIONS = [("grpc.so_reuseport", 0)]
"""Else gRPC would share a port with another simulator."""


class Simulator:
    """All services of one simulated Google Cloud, on the running event loop; `folder` keeps their state.

    After a restart, also one after a kill -9, every service is where it was: programs on hosts go on.
    `key_delay` is how long hosts take to hear of an SSH key, in seconds; None leaves it to `speed`. Times of
    the Cloud TPU API, of hosts and of faults are of `clock`; Cloud Storage's are of the machine.
    `egress` says what becomes of traffic to places that are not simulated: see `profiles.Profile`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        speed: str = "instant",
        aliases: bool | None = None,
        key_delay: float | None = None,
        clock: Clock | None = None,
        egress: str = PASS,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._files = files = SimulatorFolder(folder)
        self.lock = _claim(files.lock)
        self.clock = clock = clock or Clock()
        pace = replace(profile(speed, egress=egress), clock=clock.now, sleep=clock.sleep)
        self._egress = pace.egress
        self.events = Events(pace.clock, files.events)
        self.faults = FaultRegistry(pace.clock, self.events, folder / FAULTS)
        self._control = Control(self.faults)
        self.last_call = time.monotonic()
        self._database = Database(folder / "world.db")
        self._authority = CertificateAuthority(folder / "tls")
        self._ports = Ports(folder / "ports.json")
        self.gcs = GcsServer(folder / "gcs", self.faults)
        self.projects = Projects(self._database, lambda project: self.hosts.project_changed(project))
        self.hosts = HostPool(
            files.hosts,
            self._surroundings,
            project_metadata=self.projects.metadata,
            aliases=aliases,
            key_delay=KEY_DELAYS.get(speed, 0.0) if key_delay is None else key_delay,
            clock=clock.now,
            events=self.events,
        )
        self.world = World(self._database, pace, self.hosts, self.faults, self.events)
        self._offline = Offline(self.hosts.offline)
        self._director = Director(
            self.faults, self.world, self.hosts, self.gcs.store, self.events, pace, self._cut_offline
        )
        self._workstation = Workstation(folder / "workstation", PROJECT)
        self._runners: list[web.AppRunner] = []
        self._grpc = grpc.aio.server(interceptors=[_Watch(self._called)], options=GRPC_OPTIONS)
        self._door = TlsMux(self._authority.server_context([TPU_API]))
        self._proxy: ConnectProxy | None = None
        self.endpoints: dict[str, Any] = {}

    async def start(self) -> None:
        """Start every service, bring back what was running, and write the endpoints file last."""
        await self._start_surroundings()
        await self.world.resume()
        await self.hosts.sweep([host for node in self.world.nodes() if _is_up(node) for host in node.hosts()])
        self._director.start()
        await self._start_tpu_api()
        self._control.publish(
            self.folder, await self._serve("control", _runner(self._watched(self._control.application())))
        )
        self._ports.save()
        write_private(self._files.endpoints, json.dumps(self.endpoints, indent=2).encode())

    async def close(self) -> None:
        """End every process of the hosts and every service; state stays on disk."""
        for file in (self._files.endpoints, self._files.control):
            file.unlink(missing_ok=True)
        await self._grpc.stop(0.5)
        await self._director.close()
        await self.world.close()
        await self.hosts.close()
        await self._workstation.close()
        if self._proxy:
            await self._proxy.close()
        await self._door.close()
        for runner in self._runners:
            await runner.cleanup()
        self.gcs.close()
        self._database.close()
        self.events.close()
        os.close(self.lock)

    def idle_for(self) -> float:
        """Return for how many seconds nobody has called, 0 while there is a node or an operation."""
        return time.monotonic() - self.last_call if self.world.idle() else 0.0

    async def _start_surroundings(self) -> None:
        """Start what programs on hosts use; those that outlived a killed simulator wait for it."""
        self.gcs.store.ensure_bucket(BUCKET, PROJECT, location=LOCATION)
        gcs = web.AppRunner(self._watched(self.gcs.application()), **RUNNER_OPTIONS)
        storage = await self._serve("storage", gcs)
        operations = Operations(self._database)
        compute = _runner(self._watched(compute_front.application(self.projects, operations), "compute"))
        compute_rest = await self._serve("compute_rest", compute)
        routes = {**_routes(gcs, compute, tpu=await self._door.start()), **OUTSIDE[self._egress]}
        self._proxy = ConnectProxy(routes, self._authority, self._offline.admit)
        proxy = f"http://{LOOPBACK}:{await self._ports.start('proxy', partial(self._proxy.start, LOOPBACK))}"
        listen = partial(self._ports.listen, bind=partial(bound, LOOPBACK))
        metadata = await self._workstation.open(listen)
        ca_file = self._authority.ca_file
        self.endpoints = {
            "schema": 1,
            "pid": os.getpid(),
            "instance": secrets.token_hex(8),
            "project": PROJECT,
            "bucket": BUCKET,
            "storage": storage,
            "compute_rest": compute_rest,
            "proxy": proxy,
            "metadata": metadata,
            "ca_file": str(ca_file),
            "hosts_file": str(self.hosts.hosts_file),
            "ssh_config": str(self.hosts.ssh_config),
            "egress": self._egress,
            "environment": self._workstation.environment(proxy, storage, ca_file),
        }

    async def _start_tpu_api(self) -> None:
        """Start both fronts, once the world is what it was: clients may be calling already."""
        rest = _runner(self._watched(rest_front.application(self.world)))
        self.endpoints["tpu_rest"] = await self._serve("tpu_rest", rest)
        self._grpc.add_generic_rpc_handlers(tuple(grpc_front.handlers(self.world)))
        port = await self._ports.start("tpu_grpc", self._bind_grpc)
        await self._grpc.start()
        self.endpoints["tpu_grpc"] = f"{LOOPBACK}:{port}"
        self._door.forward_to(grpc=port, rest=self._ports.port("tpu_rest"))

    async def _serve(self, name: str, runner: web.AppRunner) -> str:
        await runner.setup()
        self._runners.append(runner)
        listener = self._ports.listen(name, partial(bound, LOOPBACK))
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
        return f"http://{LOOPBACK}:{self._ports.port(name)}"

    async def _bind_grpc(self, port: int) -> int:
        bound_port: int = self._grpc.add_insecure_port(f"{LOOPBACK}:{port}")
        return bound_port

    def _watched(self, application: web.Application, noted: str = "") -> web.Application:
        """Count its requests as use; with `noted`, note them as that service's."""

        @web.middleware
        async def watch(request: web.Request, handler: Any) -> web.StreamResponse:
            self._called()
            if noted:
                self.events.note("request", request.method, request.path, service=noted)
            await self._offline.admit(request.transport)
            answer: web.StreamResponse = await handler(request)
            return answer

        application.middlewares.append(watch)
        return application

    async def _cut_offline(self) -> None:
        """Cut the connections of programs whose host has just lost its network."""
        served = [
            one.transport for runner in self._runners if runner.server for one in runner.server.connections
        ]
        proxied = self._proxy.connections() if self._proxy else []
        await self._offline.cut([*served, *proxied])

    def _called(self) -> None:
        self.last_call = time.monotonic()

    def _surroundings(self, host: Any) -> Any:
        """Asked when a host starts, by when the services are up and their addresses known."""
        known = self.endpoints
        return surroundings(known["proxy"], known["storage"], Path(known["ca_file"]), self._egress)(host)


class _Watch(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Notes that a call came."""

    def __init__(self, called: Callable[[], None]) -> None:
        self._called = called

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        self._called()
        return await continuation(handler_call_details)


def _runner(application: web.Application) -> web.AppRunner:
    return web.AppRunner(application, access_log=None)


def _routes(gcs: web.AppRunner, compute: web.AppRunner, *, tpu: int) -> dict[str, Route]:
    """What Google services there are here; none of the real ones must be reached."""
    assert gcs.server is not None, "set up before its protocol is asked for"
    assert compute.server is not None
    storage = Serve(gcs.server)
    refused = Refuse("the simulator has no such service")
    return {
        "storage.googleapis.com": storage,
        "www.googleapis.com": storage,
        "*.storage.googleapis.com": storage,
        TPU_API: Tunnel(LOOPBACK, tpu),
        "compute.googleapis.com": Serve(compute.server),
        "*.googleapis.com": refused,
        "metadata.google.internal": refused,
    }


def _is_up(node: Node) -> bool:
    """Whether programs may run on the node's hosts: a killed simulator can have left some on any other."""
    return node.state == "READY"


def _claim(path: Path) -> int:
    """Hold the lock of a folder for as long as this process lives; raises StateError when another does."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        poll(lambda: _lock(handle) or None, awaiting="its lock", timeout=LOOK, backoff=Backoff(0.01, 0.1))
    except DeadlineError as error:
        os.close(handle)
        raise StateError(
            f"A simulator already serves {path.parent}.", hint="'tpuctl sim status' shows it."
        ) from error
    return handle


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
