"""Builds every service of the simulator, starts them in order, and publishes their addresses.

`_host_environment` says where the environment of a host comes from, `FaultExecutor` carries out preemptions.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict

from aiohttp import web

from tpuctl.sim.access import Guard, Secret, system_owner
from tpuctl.sim.catalogue import billing, quotas
from tpuctl.sim.client_environment import ClientEnvironment, HostEnvironment
from tpuctl.sim.clock import Clock
from tpuctl.sim.compute import rest_api as compute_api
from tpuctl.sim.compute.holdings import Firewalls, HoldingsApi
from tpuctl.sim.compute.operations import Operations
from tpuctl.sim.compute.rest_api import Projects
from tpuctl.sim.events import Events
from tpuctl.sim.fault_executor import FaultExecutor
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.server import RUNNER_OPTIONS, GcsServer
from tpuctl.sim.gcs.storage.buckets import apply_terraform, project_and_policy
from tpuctl.sim.hosts.connections import can_tell
from tpuctl.sim.hosts.network import NetworkIsolation
from tpuctl.sim.hosts.pool import HostPool
from tpuctl.sim.hosts.programs import login
from tpuctl.sim.hosts.programs.processes import node_uid_of
from tpuctl.sim.iam.callers import Access, Callers
from tpuctl.sim.iam.enforcement import Enforcement
from tpuctl.sim.iap.relay import Relay
from tpuctl.sim.iap.targets import Targets
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.proxy import TPU_API, ConnectProxy, google_routes
from tpuctl.sim.network.tunnels import LOOPBACK, Ports, WebServers, bound, sent_json
from tpuctl.sim.orphan_cleanup import OrphanWatch
from tpuctl.sim.records import ControlApi, Host
from tpuctl.sim.settings import IMAGE, MACHINE, PASS, profile
from tpuctl.sim.state import Database, lock_folder, write_private
from tpuctl.sim.tpu.grpc_api import Context
from tpuctl.sim.tpu_servers import TpuServers
from tpuctl.sim.world import World, resources
from tpuctl.simulator_folder import SimulatorFolder

PROJECT = "sim-project"
BUCKET = "sim-project-tpuctl"
LOCATION = "EUROPE-WEST4"
FAULTS = "faults.json"

LOGGED = {"compute_rest": "compute", "billing_rest": "billing", "quota_rest": "quotas"}
"""Server whose requests are noted as they are -> the name of its service in the event log."""
RELAY_SHUTDOWN = 0.1
"""Seconds that the relay's tunnels may take to end when it stops."""
KEY_DELAYS = {"real": 5.0}
"""Speed -> seconds until hosts accept an SSH key that was added to them; 0 for others."""
PUBLISH_DELAYS = {"real": 10.0}
PUBLISH_DELAY = 0.1
"""Seconds from a host's start until its guest attributes are there, by speed and for others; not measured."""


class Endpoints(TypedDict, total=False):
    """The content of endpoints.json; the TPU API's addresses come last, once it serves."""

    schema: int
    pid: int
    instance: str
    project: str
    bucket: str
    storage: str
    compute_rest: str
    billing_rest: str
    quota_rest: str
    iap_relay: str
    proxy: str
    metadata: str
    ca_file: str
    hosts_file: str
    ssh_config: str
    egress: str
    external_ips: bool
    iam: str
    default_account: str
    firewall: str
    python: str
    environment: dict[str, str]
    tpu_rest: str
    tpu_grpc: str


def _own(folder: Path) -> SimulatorFolder:
    """Make the folder of a simulator, which nobody else may read."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = SimulatorFolder(folder)
    files.check_owner()
    if not folder.stat().st_mode & stat.S_ISVTX:  # /tmp itself is everybody's
        folder.chmod(0o700)
    return files


class Simulator:
    """All services of one simulated Google Cloud, on the running event loop; `folder` keeps their state.

    A restart, also after a kill -9, resumes every service. Programs on hosts outlive the kill for
    `orphans_live` seconds, and keep running if it comes by then. Hosts accept a new SSH key after `key_delay`
    seconds, and publish their guest attributes after `publish_delay` (None: by `speed`). The Cloud TPU API,
    hosts and faults use `clock`; Cloud Storage uses the machine's. `egress` and `external_ips` are
    explained in `settings.Profile`, `firewall` in `settings.FIREWALLS`, `aliases` in `hosts.network.Network`,
    `iam` in `iam.enforcement`: without it every caller may do everything. `python` is explained in
    `settings.PYTHONS`; raises UsageError where this machine does not have that of the images.
    """

    def __init__(
        self,
        folder: Path,
        *,
        speed: str = "instant",
        aliases: bool | None = None,
        key_delay: float | None = None,
        publish_delay: float | None = None,
        clock: Clock | None = None,
        egress: str = PASS,
        external_ips: bool = True,
        iam: Enforcement | None = None,
        firewall: str = "open",
        python: str = MACHINE,
        orphans_live: int = 0,
    ) -> None:
        interpreters = login.interpreters() if python == IMAGE else {}
        self._python = python
        self.folder = folder = folder.absolute()  # programs on hosts have other working folders
        self._files = files = _own(folder)
        self.lock = lock_folder(files.lock)
        self.clock = clock = clock or Clock()
        self._profile = settings = replace(
            profile(speed, egress=egress), external_ips=external_ips, clock=clock.now, sleep=clock.sleep
        )
        self.last_call = time.monotonic()
        self.endpoints: Endpoints = {}
        self.events = Events(clock.now, files.events)
        self.faults = FaultRegistry(clock.now, self.events, folder / FAULTS)
        self._guard = guard = Guard(Secret(files.secret), system_owner())
        self._database = Database(folder / "world.db")
        self._database.begin(resources.ADDRESSES, resources.addresses_before(folder))
        self._authority = CertificateAuthority(folder / "tls")
        self._ports = Ports(folder / "ports.json")
        self._firewall = firewall
        self._firewalls = Firewalls(self._database, closed=firewall == "closed")
        self.gcs = GcsServer(
            folder / "gcs",
            self.faults,
            lambda email: self._clients.public_key(email),
            lambda token: self.hosts.account_of_token(token),
        )
        self.projects = Projects(self._database, lambda project: self.hosts.project_changed(project))
        self.hosts = self._host_pool(speed, aliases, key_delay, publish_delay, interpreters)
        self._isolation = NetworkIsolation(self.hosts.offline)
        self.world = World(self._database, settings, self.hosts, self.faults, self.events)
        self._executor = FaultExecutor(self.world, self.hosts, self.gcs.store, settings, self._cut_isolated)
        self._clients = ClientEnvironment(folder / "workstation", PROJECT, guard)
        self._control = ControlApi(self.faults, guard.secret)
        self._web = WebServers(self._ports, guard, self._on_request)
        tls = self._authority.server_context([TPU_API])
        self._tpu = TpuServers(self._ports, self._web, tls, guard, self._note_use, self._enter_call)
        self._iam = iam
        self._callers = self._enforce(iam) if iam else None
        self._relay = Relay(Targets(self.world.nodes.hosts, self.hosts.connect), self.faults, self.events)
        self._proxy: ConnectProxy | None = None
        self._orphans_live = orphans_live
        self._watch: OrphanWatch | None = None

    def _host_pool(
        self,
        speed: str,
        aliases: bool | None,
        key_delay: float | None,
        publish_delay: float | None,
        interpreters: dict[str, str],
    ) -> HostPool:
        return HostPool(
            self._files.hosts,
            self._host_environment,
            self._guard,
            project_metadata=self.projects.metadata,
            admits_ssh=self._firewalls.admits_ssh,
            aliases=aliases,
            key_delay=KEY_DELAYS.get(speed, 0.0) if key_delay is None else key_delay,
            publish_delay=(
                PUBLISH_DELAYS.get(speed, PUBLISH_DELAY) if publish_delay is None else publish_delay
            ),
            clock=self.clock.now,
            sleep=self.clock.sleep,
            events=self.events,
            interpreters=interpreters,
        )

    async def start(self) -> None:
        """Start every service, resume what was running, and write the endpoints file last."""
        self._watch = OrphanWatch(self.folder, self._orphans_live)
        await self._start_services()  # first: programs that outlived a killed simulator wait for them
        await self.world.resume()
        up = [node for node in self.world.nodes.all() if node.state == "READY"]
        await self.hosts.end_orphans(live=[host for node in up for host in node.hosts()])
        self._executor.start()
        self.endpoints["tpu_grpc"], self.endpoints["tpu_rest"] = await self._tpu.serve(self.world)
        control = web.AppRunner(self._control.application(), access_log=None)
        self._control.publish(self.folder, await self._web.start("control", control))
        self._ports.save()
        write_private(self._files.endpoints, json.dumps(self.endpoints, indent=2).encode())

    async def close(self) -> None:
        """End every process of the hosts and every service; state stays on disk."""
        for file in (self._files.endpoints, self._files.control):
            file.unlink(missing_ok=True)
        await self._tpu.stop_calls()
        await self._executor.close()
        await self.world.close()
        await self.hosts.close()
        await self._clients.close()
        if self._proxy:
            await self._proxy.close()
        await self._tpu.close()
        await self._web.close()
        self.gcs.close()
        self._database.close()
        self.events.close()
        if self._watch:
            self._watch.close()
        os.close(self.lock)

    def idle_for(self) -> float:
        """Return for how many seconds there was no call; 0 while there is a node or an operation."""
        return time.monotonic() - self.last_call if self.world.idle() else 0.0

    async def _start_services(self) -> None:
        """Start all services but the Cloud TPU API, whose clients wait until it serves."""
        self.gcs.store.ensure_bucket(BUCKET, PROJECT, location=LOCATION)
        for project, rule in self._iam.state.firewalls if self._iam else ():
            self._firewalls.apply(project, rule)
        operations = Operations(self._database)
        compute = compute_api.application(
            self.projects, operations, self._firewalls, HoldingsApi(self._database, operations)
        )
        objects = web.AppRunner(self.gcs.application(), **RUNNER_OPTIONS)
        storage = await self._web.start("storage", objects, only_json=False)
        compute_rest = await self._web.start("compute_rest", web.AppRunner(compute, access_log=None))
        prices = web.AppRunner(billing.application(self.faults, PROJECT), access_log=None)
        billing_rest = await self._web.start("billing_rest", prices)
        limits = quotas.application(self.world.capacity.quotas, self.faults)
        quota_rest = await self._web.start("quota_rest", web.AppRunner(limits, access_log=None))
        relay = web.AppRunner(self._relay.application(), access_log=None, shutdown_timeout=RELAY_SHUTDOWN)
        iap_relay = await self._web.start("iap_relay", relay)
        routes = google_routes(self._web, await self._tpu.listen(), self._profile.egress)
        self._proxy = ConnectProxy(routes, self._authority, self._guard, self._isolation.admit)
        proxy = f"http://{LOOPBACK}:{await self._ports.start('proxy', partial(self._proxy.start, LOOPBACK))}"
        metadata = await self._clients.open(partial(self._ports.listen, bind=partial(bound, LOOPBACK)))
        self.endpoints = {
            "schema": 1,
            "pid": os.getpid(),
            "instance": secrets.token_hex(8),
            "project": PROJECT,
            "bucket": BUCKET,
            "storage": storage,
            "compute_rest": compute_rest,
            "billing_rest": billing_rest,
            "quota_rest": quota_rest,
            "iap_relay": iap_relay,
            "proxy": proxy,
            "metadata": metadata,
            "ca_file": str(self._authority.ca_file),
            "hosts_file": str(self.hosts.hosts_file),
            "ssh_config": str(self.hosts.ssh_config),
            "egress": self._profile.egress,
            "external_ips": self._profile.external_ips,
            "iam": self._iam.user if self._iam else "",
            "default_account": "editor"
            if not self._iam or self._iam.state.policies.default_account
            else "none",
            "firewall": self._firewall,
            "python": self._python,
            "environment": self._clients.environment(proxy, storage, self._authority, self.hosts.ssh_config),
        }

    def _host_environment(self, host: Host) -> Mapping[str, str]:
        """The variables of every program on a host; read when a host starts, which is after the services."""
        proxy, storage = self.endpoints["proxy"], self.endpoints["storage"]
        files = (self._authority.ca_file, self._authority.own_file)
        settings = self._profile.egress, self._profile.seconds("chips")
        return HostEnvironment(proxy, storage, *files, *settings).of(host)

    async def _on_request(self, server: str, request: web.Request) -> None:
        self._note_use()
        if server in LOGGED:
            body = await sent_json(request)
            self.events.note("request", request.method, request.path, service=LOGGED[server], body=body)
        await self._isolation.admit(request.transport)
        if self._callers:
            await self._callers.enter_request(request)

    async def _cut_isolated(self) -> None:
        """Cut the connections of programs whose host has just lost its network."""
        proxied = self._proxy.connections() if self._proxy else []
        await self._isolation.cut([*self._web.connections(), *proxied])

    def _enforce(self, iam: Enforcement) -> Callers:
        """Take over what Terraform applied, and tell callers apart from now on."""
        buckets = self.gcs.store.buckets
        apply_terraform(buckets, iam.state.buckets, iam.state.bucket_policies)
        access = Access(iam.policies([PROJECT]), partial(project_and_policy, buckets))
        host_of = self.hosts.mark_at if can_tell() else None
        return Callers(access, iam.user, host_of, self._account_of, self.hosts.account_of_token)

    def _account_of(self, mark: str) -> str:
        """The service account of the host with a mark, also of one that is just ending."""
        uid = node_uid_of(mark)
        nodes = (node for node in self.world.nodes.all() if str(node.uid) == uid)
        return next((node.hosts()[0].service_account for node in nodes), "")

    async def _enter_call(self, context: Context) -> None:
        if self._callers:
            await self._callers.enter_call(context)

    def _note_use(self) -> None:
        self.last_call = time.monotonic()
