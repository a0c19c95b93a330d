"""Starts and stops the hosts of all nodes for the simulated world.

`HostPool.stop` is where a preemption, a stop or a delete kills the processes of a host.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from tpuctl.parallel import allow_open_files
from tpuctl.sim.access import Guard
from tpuctl.sim.events import Events
from tpuctl.sim.hosts.connections import ConnectionOwners, can_tell
from tpuctl.sim.hosts.host import RunningHost
from tpuctl.sim.hosts.metadata.identity import Signer
from tpuctl.sim.hosts.metadata.server import Instance
from tpuctl.sim.hosts.network import HostDisk, Network
from tpuctl.sim.hosts.programs.processes import Sleep, end_processes, host_mark, world_mark
from tpuctl.sim.hosts.ssh import AuthorizedKeys
from tpuctl.sim.network.tunnels import Ports
from tpuctl.sim.records import GRACE, GuestAttribute, Host, Notices
from tpuctl.sim.state import write_private

END_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL when the simulator itself ends, for which somebody waits."""

SSH_PORT = 22

SSH_CONFIG = """\
Host {address}
  HostName {host}
  Port {port}
  ProxyCommand none
  UserKnownHostsFile "{known_hosts}"
  UpdateHostKeys no
"""

HostId = tuple[str, int]


def no_metadata(project: str) -> dict[str, str]:
    """Return the metadata of a project that has none."""
    return {}


class HostPool:
    """Runs the hosts; implements `tpuctl.sim.records.Hosts`.

    `folder` holds the hosts' files. `environment` returns the variables that the simulator sets on a host,
    `guard` decides who may connect to a host, `admits_ssh` whether the firewall of a project lets SSH in
    from outside, and `project_metadata` returns the metadata that all hosts of a
    project show. With `aliases` hosts listen on addresses of their own (None: where the system can). Keys
    added to a running node are accepted after `key_delay` seconds of `clock`. `sleep` waits by that clock.
    A host publishes its guest attributes `publish_delay` seconds of the machine's clock after it is up.
    `interpreters` are those of the images, by version; without them hosts have this machine's.

    `hosts_file` is written as JSON: `{address: [host, port]}`, where the SSH server of each address really
    listens; ports stay the same over a restart, where free. `ssh_config` is the same for OpenSSH, with the
    hosts' keys in a file beside it.
    """

    def __init__(
        self,
        folder: Path,
        environment: Callable[[Host], Mapping[str, str]],
        guard: Guard,
        *,
        project_metadata: Callable[[str], Mapping[str, str]] = no_metadata,
        admits_ssh: Callable[[str], bool] = lambda _: True,
        aliases: bool | None = None,
        key_delay: float = 0.0,
        publish_delay: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        events: Events | None = None,
        interpreters: Mapping[str, str] | None = None,
    ) -> None:
        self.hosts_file = folder.with_name(f"{folder.name}.json")
        self.ssh_config = folder.with_name(f"{folder.name}.ssh_config")
        self._known_hosts = folder.with_name(f"{folder.name}.known_hosts")
        self._folder = folder
        self._environment = environment
        self._guard = guard
        self._project_metadata = project_metadata
        self._key_delay = key_delay
        self._publish_delay = publish_delay
        self._clock = clock
        self._sleep = sleep
        self._events = Events() if events is None else events
        self._interpreters = interpreters or {}
        self._ports = Ports(folder.with_name(f"{folder.name}-ports.json"))
        self._owners = ConnectionOwners(world_mark(folder))
        self._network = Network(self._ports, guard, aliases, self._is_of_a_host, admits_ssh)
        self._signer = Signer(folder.with_name(f"{folder.name}-identity.pem"))
        self._running: dict[HostId, RunningHost] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Bring every host of a node up, and show its metadata on those that are up already.

        Raises OSError when a host cannot listen; the hosts that were down then stay down.
        """
        allow_open_files()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._lock(hosts):
            await self._open([host for host in hosts if _id(host) not in self._running], metadata)
            self._update(hosts, metadata)
            self._write_addresses()
            self._ports.save()

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool, grace: float = GRACE) -> None:
        """End the hosts: connections, then programs (SIGTERM, SIGKILL after `grace` seconds), then servers.

        Without `keep_disk` their files are deleted, also those of hosts that were down.
        """
        async with self._lock(hosts):
            running_hosts = [self._running.pop(_id(host)) for host in hosts if _id(host) in self._running]
            self._write_addresses()
            marks = {host_mark(self._folder, host) for host in hosts}
            await self._end(running_hosts, marks.__contains__, grace, self._sleep)
            if not keep_disk:
                await asyncio.to_thread(_delete, [HostDisk(self._folder, host) for host in hosts])
                for host in hosts:
                    self._network.forget(host.address)
                self._ports.save()

    async def crash(self, hosts: Sequence[Host]) -> None:
        """End the hosts as a power cut does, without SIGTERM; their files stay."""
        await self.stop(hosts, keep_disk=True, grace=0)

    async def update_metadata(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Show the node's changed metadata on its hosts at once; keys count after the delay."""
        self._update(hosts, metadata)

    def project_changed(self, project: str) -> None:
        """Show a project's changed metadata on its hosts at once; keys count after the delay."""
        for running in self._running.values():
            if running.host.project == project:
                running.update_project(self._project_metadata(project))

    async def announce(self, hosts: Sequence[Host], notices: Notices) -> None:
        """Show a preemption or maintenance notice on the hosts' metadata servers; nothing is ended yet."""
        for running in self._up(hosts):
            running.announce(notices)

    async def set_faults(self, faults: Mapping[HostId, frozenset[str]]) -> None:
        """Have exactly these kinds of faults in force on each host that is up, by node id and worker."""
        for identity, running in list(self._running.items()):
            endpoint = running.ssh_endpoint
            await running.faults.set_kinds(faults.get(identity, frozenset()))
            if running.ssh_endpoint != endpoint:
                self._write_addresses()

    def offline(self) -> set[str]:
        """Return the marks of the hosts that have lost their network."""
        return {running.mark for running in self._running.values() if running.faults.offline}

    def account_of_token(self, token: str) -> str:
        """Return the service account whose access token this is; '' for no host's token."""
        hosts = [running for running in self._running.values() if running.has_token(token)]
        return hosts[0].host.service_account if token and hosts else ""

    async def mark_at(self, address: tuple[str, int]) -> str | None:
        """Return the mark of the host whose program is at an address: `ConnectionOwners.mark_at`."""
        return await asyncio.to_thread(self._owners.mark_at, address)

    async def connect(self, host: Host, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of a host from inside its network; raises OSError, also when it is down.

        Port 22 is the one that SSH listens on here, which needs no root.
        """
        running = self._running.get(_id(host))
        if running is None:
            raise ConnectionRefusedError
        address, ssh_port = running.ssh_endpoint
        return await self._network.connect((address, ssh_port if port == SSH_PORT else port))

    def guest_attributes(self, host: Host) -> list[GuestAttribute]:
        """Return what the host has written, up or not; nothing for a host that never started."""
        return HostDisk(self._folder, host).guest.items()

    async def end_orphans(self, live: Iterable[Host]) -> None:
        """End the processes that a killed simulator left on hosts other than `live`."""
        if not self._has_had_hosts:
            return
        marks = {host_mark(self._folder, host) for host in live}
        ours = self._is_ours
        await end_processes(lambda mark: ours(mark) and mark not in marks, set, END_GRACE)

    async def close(self, *, grace: float = END_GRACE) -> None:
        """End all hosts, and processes of a killed simulator on hosts that are down; files stay."""
        running_hosts = list(self._running.values())
        self._running.clear()
        if running_hosts:
            self._write_addresses()
        if running_hosts or self._has_had_hosts:
            await self._end(running_hosts, self._is_ours, grace, asyncio.sleep)
        self._network.close()

    @property
    def _has_had_hosts(self) -> bool:
        """Whether processes of hosts may be there: a look at all processes of this machine takes its time."""
        return self._folder.is_dir() and any(entry.is_dir() for entry in self._folder.iterdir())

    def _lock(self, hosts: Sequence[Host]) -> asyncio.Lock:
        """Return the lock of a node; it lives as long as a task holds it or waits for it."""
        return self._locks.setdefault(_node(hosts), asyncio.Lock())

    def _is_of_a_host(self, address: tuple[str, int]) -> bool:
        return can_tell() and bool(self._owners.mark_at(address))

    def _is_ours(self, mark: str) -> bool:
        return mark.startswith(world_mark(self._folder))

    async def _open(self, hosts: Sequence[Host], metadata: Mapping[str, str]) -> None:
        """Open all of these hosts or none, also when it is cancelled."""
        running_hosts = [self._new(host, metadata) for host in hosts]
        openings = [asyncio.create_task(running.open(self._network)) for running in running_hosts]
        try:
            await asyncio.gather(*openings)
        except BaseException:
            for opening in openings:
                opening.cancel()
            await asyncio.gather(*openings, return_exceptions=True)
            await asyncio.gather(*(running.close() for running in running_hosts))
            raise
        self._running.update({_id(running.host): running for running in running_hosts})

    def _new(self, host: Host, metadata: Mapping[str, str]) -> RunningHost:
        instance = Instance(host, dict(metadata), self._project_metadata(host.project))
        return RunningHost(
            instance,
            self._folder,
            self._environment,
            self._authorized_keys,
            self._signer,
            self._guard,
            self._events,
            self._clock,
            self._publish_delay,
            self._interpreters,
        )

    async def _end(
        self,
        running_hosts: Sequence[RunningHost],
        chosen: Callable[[str], bool],
        grace: float,
        sleep: Sleep,
    ) -> None:
        await asyncio.gather(*(running.cut_off() for running in running_hosts))
        leaders = lambda: set[int]().union(*(running.programs.pids() for running in running_hosts))  # noqa: E731
        await end_processes(chosen, leaders, grace, sleep)
        await asyncio.gather(*(running.close() for running in running_hosts))

    def _update(self, hosts: Sequence[Host], metadata: Mapping[str, str]) -> None:
        for host in hosts:
            if _id(host) in self._running:
                self._running[_id(host)].update(host, metadata)

    def _up(self, hosts: Sequence[Host]) -> list[RunningHost]:
        return [self._running[_id(host)] for host in hosts if _id(host) in self._running]

    def _authorized_keys(self, text: str) -> AuthorizedKeys:
        return AuthorizedKeys(text, self._key_delay, self._clock)

    def _write_addresses(self) -> None:
        table = {running.host.address: running.ssh_endpoint for running in self._running.values()}
        write_private(self.hosts_file, json.dumps(table).encode())
        blocks = [
            SSH_CONFIG.format(address=address, host=host, port=port, known_hosts=self._known_hosts)
            for address, (host, port) in table.items()
        ]
        keys = (
            "[{}]:{} {}".format(*running.ssh_endpoint, running.public_key)
            for running in self._running.values()
        )
        write_private(self._known_hosts, "".join(keys).encode())
        write_private(self.ssh_config, "".join(blocks).encode())


def _id(host: Host) -> HostId:
    return host.node_uid, host.worker


def _node(hosts: Sequence[Host]) -> str:
    return hosts[0].node_uid if hosts else ""


def _delete(disks: Iterable[HostDisk]) -> None:
    for disk in disks:
        disk.delete()
