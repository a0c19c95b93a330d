"""Runs one simulated host: its disk, its SSH and metadata servers, and its programs.

`_environment` joins the variables of its programs; those of a login are added in `programs/login.py`.
"""

from __future__ import annotations

import asyncio
import hmac
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import asyncssh

from tpuctl.sim.access.guard import Guard
from tpuctl.sim.events import Events
from tpuctl.sim.hosts import crontab
from tpuctl.sim.hosts.disk import HostDisk
from tpuctl.sim.hosts.etc_hosts import etc_hosts
from tpuctl.sim.hosts.faults import HostFaults
from tpuctl.sim.hosts.metadata.identity import Identity, Signer
from tpuctl.sim.hosts.metadata.server import MetadataServer
from tpuctl.sim.hosts.metadata.tree import Instance, metadata_tree
from tpuctl.sim.hosts.network import HostListener, Network
from tpuctl.sim.hosts.os_inventory import inventory
from tpuctl.sim.hosts.programs.login import search_path, write_profile
from tpuctl.sim.hosts.programs.namespaces import ETC_HOSTS, Namespaces, enterer, make
from tpuctl.sim.hosts.programs.processes import MARK, host_mark, of_host
from tpuctl.sim.hosts.programs.programs import Enter, Programs
from tpuctl.sim.hosts.ssh.authorized_keys import AuthorizedKeys, accepted_keys
from tpuctl.sim.hosts.ssh.server import SshHost, SshServer
from tpuctl.sim.hosts.startup import run_startup_script, script_of
from tpuctl.sim.records import Host, Notices

Endpoint = tuple[str, int]
KeysFrom = Callable[[str], AuthorizedKeys]
Serve = Callable[[socket.socket], Awaitable[None]]


class RunningHost:
    """A host that is up, from `open` to `close`."""

    def __init__(
        self,
        instance: Instance,
        pool: Path,
        environment: Callable[[Host], Mapping[str, str]],
        keys_from: KeysFrom,
        signer: Signer,
        guard: Guard,
        events: Events,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.host = host = instance.host
        self.mark = host_mark(pool, host)
        self.disk = HostDisk(pool, host)
        self.programs = Programs(self._furnish)
        self._namespaces: Namespaces | None = None
        self.ssh_endpoint: Endpoint = (host.address, 0)
        self.public_key = ""
        """The host key that it publishes, as a line of OpenSSH."""
        self._metadata_endpoint: Endpoint = (host.address, 0)
        self._simulator_environment = environment
        self._path = ""
        self._instance = instance
        self._keys = keys_from(accepted_keys(instance.metadata, instance.project_metadata))
        self._identity = identity = Identity(self.disk.access_token, signer)
        self._metadata = MetadataServer(
            metadata_tree(instance),
            identity,
            self.disk.guest,
            guard,
            partial(_note, events, host, "metadata"),
            clock,
        )
        note = partial(_note, events, host, "ssh")
        self._ssh = SshServer(
            SshHost(
                host,
                self.disk.home,
                self._keys,
                self.programs,
                self._environment,
                guard,
                note,
                self.disk.view,
            )
        )
        self._network: Network | None = None
        self._listeners: dict[str, HostListener] = {}
        self.faults = HostFaults(self)

    async def open(self, network: Network) -> None:
        """Start both servers; raises OSError when one cannot be, and leaves nothing open."""
        self._network = network
        self.disk.prepare()
        await self.faults.recover()
        self._path = f"{crontab.install(self.disk.folder)}:{search_path(self.disk.folder)}"
        write_profile(self.disk.home, self._path)
        key = self.disk.host_key()
        self.public_key = key.export_public_key().decode()
        self._publish(self.public_key.split()[1])
        try:
            self._metadata_endpoint = await self._serve(network, "metadata", self._metadata.open)
            self.ssh_endpoint = await self._serve(network, "ssh", partial(self._ssh.open, host_key=key))
            await self.boot()
        except BaseException:
            await self.close()
            raise

    def update(self, host: Host, metadata: Mapping[str, str]) -> None:
        """Show the node's changed metadata at once; SSH keys in it count after the delay."""
        self.host = host
        self._show(replace(self._instance, host=host, metadata=dict(metadata)))

    def update_project(self, metadata: Mapping[str, str]) -> None:
        """Show the project's changed metadata in the same way."""
        self._show(replace(self._instance, project_metadata=dict(metadata)))

    def announce(self, notices: Notices) -> None:
        """Show a preemption or a maintenance event to the host."""
        self._show(replace(self._instance, notices=notices))

    @property
    def folder(self) -> Path:
        """Its folder on disk."""
        return self.disk.folder

    def has_token(self, token: str) -> bool:
        """Return whether this is the access token of its service account."""
        return hmac.compare_digest(self._identity.access_token().encode(), token.encode())

    def leaders(self) -> set[int]:
        """Return the process ids of the programs it has started."""
        return self.programs.pids()

    async def silence(self) -> None:
        """Stop answering, on open connections and new ones."""
        for listener in self._listeners.values():
            listener.mute()
        self._ssh.pause(pausing=True)
        await self._metadata.cut()

    async def unsilence(self, *, cut: bool) -> None:
        """Answer again; with `cut`, connections from before are cut instead."""
        if cut:
            await self._ssh.cut()
        for listener in self._listeners.values():
            listener.unmute()
        self._ssh.pause(pausing=False)

    async def refuse_ssh(self) -> None:
        """Refuse new SSH connections."""
        await self._ssh.refuse()

    async def accept_ssh(self) -> None:
        """Accept them again, at the same port where it is free."""
        assert self._network is not None, "it is up"
        self.ssh_endpoint = await self._serve(self._network, "ssh", self._ssh.open)

    def show_key(self, *, own: bool) -> None:
        """Present its own host key, or a new one."""
        self._ssh.change_key(self.disk.host_key() if own else asyncssh.generate_private_key("ssh-ed25519"))

    async def boot(self) -> None:
        """Run the startup script and the crontab's @reboot lines.

        Programs that outlived a killed simulator show that this is no boot.
        """
        instance = self._instance
        script = script_of(instance.metadata, instance.project_metadata)
        commands = crontab.boot_commands(self.disk)
        if not (script or commands) or bool(await asyncio.to_thread(of_host, self.mark, set[int]())):
            return
        await self.programs.prepare()
        await asyncio.to_thread(shutil.rmtree, self.disk.view / "run", ignore_errors=True)  # it is in memory
        if script:
            run_startup_script(script, self.disk, self.programs, self._environment())
        for command in commands:
            crontab.run(command, self.disk, self.programs, self._environment())

    async def cut_off(self) -> None:
        """Close the SSH server and its connections; the programs keep running."""
        await self._ssh.close()

    async def close(self) -> None:
        """Close everything, once the programs have been ended."""
        await self._ssh.close()
        await self.programs.close()
        await self._metadata.close()
        if self._namespaces:
            self._namespaces.close()
        await self.faults.clean_up()

    def _show(self, instance: Instance) -> None:
        self._instance = instance
        self._metadata.show(metadata_tree(instance))
        self._keys.change(accepted_keys(instance.metadata, instance.project_metadata))

    async def _serve(self, network: Network, service: str, serve: Serve) -> Endpoint:
        listener = self._listeners[service] = network.listen(self.host.address, service)
        if service == "ssh":
            listener.admits = lambda address: self.host.external or network.is_inside(address)
        try:
            await serve(listener)
        except BaseException:
            listener.close()
            raise
        address, port = listener.getsockname()
        return address, port

    async def _furnish(self) -> Enter:
        """Give the programs the names of a host, where the system allows it."""
        if await asyncio.to_thread(enterer) is None or self._network is None:
            return lambda command: command
        listener = self._network.listen_as_metadata_server()
        if listener:
            self._listeners["metadata by name"] = listener
            await self._metadata.open(listener)
        address = listener.getsockname()[0] if listener else ""
        self.disk.write_etc_hosts(etc_hosts(self.host, address, ETC_HOSTS.read_text()))
        self._namespaces = await asyncio.to_thread(self._make_namespaces)
        return self._namespaces.enter

    def _make_namespaces(self) -> Namespaces:
        return make(self.host.hostname, self.disk.etc_hosts, lambda: of_host(self.mark, set()))

    def _publish(self, public_key: str) -> None:
        """Write the guest attributes: the host key and name that gcloud reads, and the system's inventory."""
        hostkeys = {"ssh-ed25519": public_key, "hostname": self.host.hostname}
        self.disk.guest.publish({"hostkeys": hostkeys, "guestInventory": inventory(self.host.hostname)})

    def _environment(self) -> dict[str, str]:
        """The variables of every program; none are inherited from the simulator's process."""
        metadata = "{}:{}".format(*self._metadata_endpoint)
        return {
            "HOME": str(self.disk.home),
            "PATH": self._path,
            "TMPDIR": str(self.disk.tmp),
            "HOSTNAME": self.host.hostname,
            "GCE_METADATA_HOST": metadata,
            "GCE_METADATA_IP": metadata,
            "GCE_METADATA_ROOT": metadata,  # its name in tensorstore and in oauth2client
            "TPUCTL_SIM_DISK": str(self.disk.folder),
            **self._simulator_environment(self.host),
            MARK: self.mark,
        }


def _note(events: Events, host: Host, service: str, method: str, detail: str) -> None:
    events.note("request", method, f"{host.node}/workers/{host.worker}", detail, service)
