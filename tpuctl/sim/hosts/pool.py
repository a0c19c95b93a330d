"""The simulated hosts of all nodes, as the simulated world asks for them."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from tpuctl.sim.events import Events
from tpuctl.sim.hosts.disk import HostDisk
from tpuctl.sim.hosts.host import Machine
from tpuctl.sim.hosts.metadata.identity import Signer
from tpuctl.sim.hosts.metadata.tree import Instance
from tpuctl.sim.hosts.network import Network
from tpuctl.sim.hosts.programs.processes import end_processes, host_mark, world_mark
from tpuctl.sim.hosts.ssh.authorized_keys import AuthorizedKeys
from tpuctl.sim.network.ports import Ports
from tpuctl.sim.records import GuestAttribute, Host, Notices
from tpuctl.sim.state.private_file import write_private

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL when a host ends."""
OPEN_FILES = 16_384
"""Wanted: two listening sockets a host, and some ten descriptors for each session, with 256 hosts a slice."""

SSH_CONFIG = "Host {}\n  HostName {}\n  Port {}\n"

HostId = tuple[str, int]


def no_metadata(project: str) -> dict[str, str]:
    """Return the metadata of a project that has none."""
    return {}


class HostPool:
    """Runs the hosts; implements `tpuctl.sim.records.Hosts`.

    `folder` holds the hosts' files. `environment` adds to what a host's programs see. `project_metadata` is
    asked for what all hosts of a project see. `aliases` says whether hosts listen on addresses of their own
    (None: where the system can). Keys added to a running node are accepted after `key_delay` seconds of
    `clock`. `dial` is a JSON file that says where the SSH server of each address really listens:
    `{address: [host, port]}`; the ports are the same after a restart, where they are free. `ssh_config` says
    the same to OpenSSH, and to gcloud by `--ssh-flag=-FFILE`.
    """

    def __init__(
        self,
        folder: Path,
        environment: Callable[[Host], Mapping[str, str]],
        *,
        project_metadata: Callable[[str], Mapping[str, str]] = no_metadata,
        aliases: bool | None = None,
        key_delay: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        events: Events | None = None,
    ) -> None:
        self.hosts_file = folder.with_name(f"{folder.name}.json")
        self.ssh_config = folder.with_name(f"{folder.name}.ssh_config")
        self._folder = folder
        self._environment = environment
        self._project_metadata = project_metadata
        self._key_delay = key_delay
        self._clock = clock
        self._events = Events() if events is None else events
        self._ports = Ports(folder.with_name(f"{folder.name}-ports.json"))
        self._network = Network(self._ports, aliases)
        self._signer = Signer(folder.with_name(f"{folder.name}-identity.pem"))
        self._machines: dict[HostId, Machine] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Bring every host of a node up; one that is up only learns the metadata.

        Raises OSError when a host cannot listen; then none of those that were down is up.
        """
        _allow_open_files()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._lock(hosts):
            await self._open([host for host in hosts if _id(host) not in self._machines], metadata)
            self._update(hosts, metadata)
            self._write_dial()
            self._ports.save()

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool, grace: float = GRACE) -> None:
        """End the hosts: connections, then programs (SIGTERM, SIGKILL after `grace` seconds), then servers.

        Without `keep_disk` their files go, too, also those of hosts that were down.
        """
        async with self._lock(hosts):
            machines = [self._machines.pop(_id(host)) for host in hosts if _id(host) in self._machines]
            self._write_dial()
            marks = {host_mark(self._folder, host) for host in hosts}
            await self._end(machines, marks.__contains__, grace)
            if not keep_disk:
                await asyncio.to_thread(_delete, [HostDisk(self._folder, host) for host in hosts])
                for host in hosts:
                    self._network.leave(host.address)
                self._ports.save()

    async def crash(self, hosts: Sequence[Host]) -> None:
        """End the hosts as a power cut does: no program hears of it; their files stay."""
        await self.stop(hosts, keep_disk=True, grace=0)

    async def update_metadata(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        """Show the node's changed metadata on its hosts at once; keys count after the delay."""
        self._update(hosts, metadata)

    def project_changed(self, project: str) -> None:
        """Show a project's changed metadata on its hosts at once; keys count after the delay."""
        for machine in self._machines.values():
            if machine.host.project == project:
                machine.update_project(self._project_metadata(project))

    async def announce(self, hosts: Sequence[Host], notices: Notices) -> None:
        """Show a preemption or maintenance notice on the hosts' metadata servers; nothing is ended yet."""
        for machine in self._up(hosts):
            machine.announce(notices)

    async def set_faults(self, faults: Mapping[HostId, frozenset[str]]) -> None:
        """Have exactly these kinds of faults be in force on each host that is up, by node id and worker."""
        for identity, machine in list(self._machines.items()):
            endpoint = machine.ssh_endpoint
            await machine.troubles.settle(faults.get(identity, frozenset()))
            if machine.ssh_endpoint != endpoint:
                self._write_dial()

    def offline(self) -> set[str]:
        """Return the marks of the hosts that have lost their network."""
        return {machine.mark for machine in self._machines.values() if machine.troubles.offline}

    def guest_attributes(self, host: Host) -> list[GuestAttribute]:
        """Return what the host has written, up or not; nothing for a host that never was."""
        return HostDisk(self._folder, host).guest.items()

    async def end_orphans(self, live: Iterable[Host]) -> None:
        """End what a killed simulator left running on hosts that are not among `live`."""
        marks = {host_mark(self._folder, host) for host in live}
        ours = self._is_ours
        await end_processes(lambda mark: ours(mark) and mark not in marks, set, GRACE)

    async def close(self, *, grace: float = GRACE) -> None:
        """End all hosts, keeping their files, and what a killed simulator left on those that are down."""
        machines = list(self._machines.values())
        self._machines.clear()
        if machines:
            self._write_dial()
        await self._end(machines, self._is_ours, grace)

    def _lock(self, hosts: Sequence[Host]) -> asyncio.Lock:
        """Return the lock of a node, which goes with the last who holds or waits for it."""
        return self._locks.setdefault(_node(hosts), asyncio.Lock())

    def _is_ours(self, mark: str) -> bool:
        return mark.startswith(world_mark(self._folder))

    async def _open(self, hosts: Sequence[Host], metadata: Mapping[str, str]) -> None:
        machines = [self._machine(host, metadata) for host in hosts]
        outcomes = await asyncio.gather(
            *(machine.open(self._network) for machine in machines), return_exceptions=True
        )
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures:
            await asyncio.gather(*(machine.close() for machine in machines))
            raise failures[0]
        self._machines.update({_id(machine.host): machine for machine in machines})

    def _machine(self, host: Host, metadata: Mapping[str, str]) -> Machine:
        instance = Instance(host, dict(metadata), self._project_metadata(host.project))
        keys_from, signer, events = self._authorized_keys, self._signer, self._events
        return Machine(instance, self._folder, self._environment, keys_from, signer, events)

    async def _end(self, machines: Sequence[Machine], chosen: Callable[[str], bool], grace: float) -> None:
        await asyncio.gather(*(machine.cut_off() for machine in machines))
        await end_processes(
            chosen, lambda: set().union(*(machine.programs.pids() for machine in machines)), grace
        )
        await asyncio.gather(*(machine.close() for machine in machines))

    def _update(self, hosts: Sequence[Host], metadata: Mapping[str, str]) -> None:
        for machine in self._up(hosts):
            machine.update(metadata)

    def _up(self, hosts: Sequence[Host]) -> list[Machine]:
        return [self._machines[_id(host)] for host in hosts if _id(host) in self._machines]

    def _authorized_keys(self, text: str) -> AuthorizedKeys:
        return AuthorizedKeys(text, self._key_delay, self._clock)

    def _write_dial(self) -> None:
        table = {machine.host.address: machine.ssh_endpoint for machine in self._machines.values()}
        write_private(self.hosts_file, json.dumps(table).encode())
        lines = (SSH_CONFIG.format(address, *endpoint) for address, endpoint in table.items())
        write_private(self.ssh_config, "".join(lines).encode())


def _id(host: Host) -> HostId:
    return host.node_uid, host.worker


def _node(hosts: Sequence[Host]) -> str:
    return hosts[0].node_uid if hosts else ""


def _delete(disks: Iterable[HostDisk]) -> None:
    for disk in disks:
        disk.delete()


def _allow_open_files() -> None:
    """Raise this process's own soft limit, which is 256 on macOS and 1,024 on Linux; the hard one stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
