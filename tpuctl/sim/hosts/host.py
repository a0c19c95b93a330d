"""Runs one simulated host: its disk, its SSH and metadata servers, and its programs.

`_environment` joins the variables of its programs; those of a login are added in `programs/login.py`.
"""

from __future__ import annotations

import asyncio
import getpass
import hmac
import os
import platform
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import asyncssh

from tpuctl import accelerators, images
from tpuctl.sim.access import Guard
from tpuctl.sim.events import Events
from tpuctl.sim.hosts.faults import HostFaults
from tpuctl.sim.hosts.metadata.identity import Identity, Signer
from tpuctl.sim.hosts.metadata.server import Instance, MetadataServer, metadata_tree
from tpuctl.sim.hosts.network import HostDisk, HostListener, Network
from tpuctl.sim.hosts.packages import Packages
from tpuctl.sim.hosts.programs.login import (
    BECOME,
    command_line,
    installed,
    make_python,
    search_path,
    write_profile,
)
from tpuctl.sim.hosts.programs.login import SHELL as LOGIN_SHELL
from tpuctl.sim.hosts.programs.namespaces import ETC_HOSTS, Namespaces, enterer, make
from tpuctl.sim.hosts.programs.own_ports import HostPorts
from tpuctl.sim.hosts.programs.processes import MARK, host_mark, is_full, of_host
from tpuctl.sim.hosts.programs.programs import Command, Enter, Program, Programs, spawn
from tpuctl.sim.hosts.ssh import AuthorizedKeys, SshHost, SshServer, accepted_keys
from tpuctl.sim.records import Host, Notices

FILE, LOG = "crontab", "cron.log"
"""In the host's folder: the lines, and what they print, which cron would mail."""
AT_BOOT = "@reboot"
SHELL = "/bin/sh"
PATH = "/usr/bin:/bin"
"""What cron on Ubuntu sets."""
PROGRAMS = {
    FILE: """\
#!/bin/sh
# Written by the simulator: the crontab of this host.
file="$TPUCTL_SIM_DISK/crontab"
case "${1:--}" in
-l) [ -e "$file" ] || { echo "no crontab for $(id -un)" >&2; exit 1; }; exec cat "$file" ;;
-r) exec rm -f "$file" ;;
-) cat >"$file.$$" && mv "$file.$$" "$file" ;;
-*) echo "crontab: the simulator has no option $1" >&2; exit 1 ;;
*) cat -- "$1" >"$file.$$" && mv "$file.$$" "$file" ;;
esac
""",
    "sudo": """\
#!/bin/sh
# Written by the simulator: asks for no password, as on a TPU VM, but runs the command as the same user, and
# passes its variables on.
asked=
while [ $# -gt 0 ]; do
    case "$1" in
    --) shift; break ;;
    -n?*) first=-${1#-n}; shift; set -- "$first" "$@"; continue ;;
    -V | --version) echo "sudo of tpuctl's simulator: runs the command as the same user"; exit ;;
    -l | --list) asked=1; echo "    (ALL : ALL) NOPASSWD: ALL" ;;
    -[kKv] | --validate | --reset-timestamp | --remove-timestamp) asked=1 ;;
    -[is] | --login | --shell) asked=shell ;;
    -[CDghpRrTtUu] | --user | --group | --host | --prompt | --chdir) shift ;;
    -*) ;;
    [A-Za-z_]*=*) export "$1" ;;
    *) break ;;
    esac
    [ $# -eq 0 ] || shift
done
[ $# -gt 0 ] || [ "$asked" != shell ] || set -- "$SHELL"
if [ $# -eq 0 ]; then
    [ -n "$asked" ] || { echo "usage: sudo [-n] [-E] [-u USER] COMMAND" >&2; exit 1; }
    exit 0
fi
command -v "$1" >/dev/null || { echo "sudo: $1: command not found" >&2; exit 1; }
exec "$@"
""",
}
"""The programs that every host has, by name, first in PATH."""
KEY = "startup-script"
RUN = 'exec "$TPUCTL_SIM_DISK/startup-script" >>"$TPUCTL_SIM_DISK/startup-script.log" 2>&1 </dev/null'
"""The log is that of the serial console on Google's hosts."""
VFIO, CONTROL = "/dev/vfio/", "/dev/vfio/vfio"
"""Where later chips are, and the file beside them that is none: driver-api/vfio.rst in Linux."""
FOREVER = ("sleep", "2147483647")
AGENT_VERSION = "20240320.00"
METADATA = "metadata.google.internal"
ADDED = "# Added by Google"
"""What Google's guest agent writes behind its lines."""
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
        publish_delay: float = 0.0,
        interpreters: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.host = host = instance.host
        self.mark = host_mark(pool, host)
        self.disk = HostDisk(pool, host)
        self.programs = Programs(self._furnish)
        self._namespaces: Namespaces | None = None
        self._ports: HostPorts | None = None
        self.ssh_endpoint: Endpoint = (host.address, 0)
        self.public_key = ""
        """The host key that it publishes, as a line of OpenSSH."""
        self._metadata_endpoint: Endpoint = (host.address, 0)
        self._simulator_environment = environment
        self._path = ""
        self._interpreters = interpreters
        self._packages = pool.absolute().with_name("packages")
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
        self._publish_delay = publish_delay
        self._publishing: asyncio.Task[None] | None = None
        self.faults = HostFaults(self)

    async def open(self, network: Network) -> None:
        """Start both servers; raises OSError when one cannot be, and leaves nothing open."""
        self._network = network
        self.disk.prepare()
        await self.faults.recover()
        self._path = f"{install(self.disk.folder)}:{search_path(self.disk.python)}"
        write_profile(self.disk.home, self._path)
        key = self.disk.host_key()
        self.public_key = key.export_public_key().decode()
        self._publishing = asyncio.create_task(self._publish(self.public_key.split()[1]))
        if not self._publish_delay:
            await self._publishing
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
        """Run the image's own server, if it has one, the startup script and the crontab's @reboot lines.

        Programs that outlived a killed simulator show that this is no boot.
        """
        instance = self._instance
        script = script_of(instance.metadata, instance.project_metadata)
        commands = boot_commands(self.disk)
        chips = self.disk.create_devices(device_files(self.host.accelerator_type))
        server = server_of(self.host.runtime_version) if chips else ""
        if not (server or script or commands):
            return
        if await asyncio.to_thread(of_host, self.mark, set[int]()):
            return
        await self.programs.prepare()
        await asyncio.to_thread(shutil.rmtree, self.disk.view / "run", ignore_errors=True)  # it is in memory
        if server:
            run_server(server, chips, self.disk, self.programs, self._environment())
        if script:
            run_startup_script(script, self.disk, self.programs, self._environment())
        for command in commands:
            run(command, self.disk, self.programs, self._environment())

    async def cut_off(self) -> None:
        """Close the SSH server and its connections; the programs keep running."""
        await self._ssh.close()

    async def close(self) -> None:
        """Close everything, once the programs have been ended."""
        if self._publishing:
            self._publishing.cancel()
        await self._ssh.close()
        await self.programs.close()
        await self._metadata.close()
        if self._namespaces:
            self._namespaces.close()
        if self._ports:
            self._ports.close()
        await self.faults.clean_up()

    def _show(self, instance: Instance) -> None:
        self._instance = instance
        self._metadata.show(metadata_tree(instance))
        self._keys.change(accepted_keys(instance.metadata, instance.project_metadata))

    async def _serve(self, network: Network, service: str, serve: Serve) -> Endpoint:
        listener = self._listeners[service] = network.listen(self.host.address, service)
        if service == "ssh":
            listener.admits = lambda address: self._is_open(network) or network.is_inside(address)
        try:
            await serve(listener)
        except BaseException:
            listener.close()
            raise
        address, port = listener.getsockname()
        return address, port

    def _is_open(self, network: Network) -> bool:
        """Whether machines outside of the network reach its SSH server."""
        return self.host.external and network.admits_ssh(self.host.project)

    def _links(self) -> dict[str, str]:
        """What has pip take packages from this machine."""
        return {"TPUCTL_SIM_PACKAGES": str(self._packages), "TPUCTL_SIM_PYTHON": sys.executable}

    async def _furnish(self) -> Enter:
        """Give the programs a Python, and the names and the ports of a host where the system allows it."""
        await asyncio.to_thread(self._make_python)
        if self._network is not None:
            self._ports = await asyncio.to_thread(self._network.ports_of, self.host.address)
        if self._ports is not None:
            self.programs.spawn = partial(self._ports.call, spawn)
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

    def _make_python(self) -> None:
        found = images.image(self.host.runtime_version)
        interpreter = self._interpreters.get(found.python) if found else None
        if found and interpreter:
            make_python(self.disk.python, installed(self._packages, found, interpreter), interpreter)
        else:
            make_python(self.disk.python, Packages(self._packages).image(found.packages if found else ()))

    def _make_namespaces(self) -> Namespaces:
        return make(self.host.hostname, self.disk.etc_hosts, lambda: of_host(self.mark, set()))

    async def _publish(self, public_key: str) -> None:
        """Write the guest attributes: the host key and name that gcloud reads, and the system's inventory.

        The guest agent does so some time after the host has its address; what it wrote stays over a boot.
        """
        if self._publish_delay:
            await asyncio.sleep(self._publish_delay)
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
            "TPUCTL_HOST_ROOT": str(self.disk.view),
            "TPUCTL_SIM_RUNTIME": self.host.runtime_version,
            **({} if self._interpreters else self._links()),
            **self._simulator_environment(self.host),
            MARK: self.mark,
        }


def _note(events: Events, host: Host, service: str, method: str, detail: str) -> None:
    events.note("request", method, f"{host.node}/workers/{host.worker}", detail, service)


# Writes the /etc/hosts of a host: its own name, those of the other workers, and the metadata server's.


def etc_hosts(host: Host, metadata: str, machine: str) -> str:
    """Return its text; `metadata` is the metadata server's address, '' where port 80 is not the simulator's.

    The names of `machine`, the text of this machine's file, stay: the host reaches what the machine reaches.
    """
    lines = [f"{address} {_names(host, worker)}" for worker, address in enumerate(host.peers)]
    lines += [f"{metadata} {METADATA}"] if metadata else []
    return "".join([machine.rstrip("\n"), "\n", *(f"{line}  {ADDED}\n" for line in lines)])


def _names(host: Host, worker: int) -> str:
    """The full name of a worker in the network's own DNS, and the short one."""
    short = f"{host.hostname.rpartition('-')[0]}-{worker}"
    return f"{short}.{host.zone}.c.{host.project}.internal {short}"


# Writes the system facts in a host's guest attributes, as Google's OS config agent does.


def inventory(hostname: str) -> dict[str, str]:
    """Return the attributes of the namespace `guestInventory`: the facts of the machine that runs it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"Hostname": hostname, "LastUpdated": now, **_system()}


@cache
def _system() -> dict[str, str]:
    release = _os_release()
    return {
        "Architecture": platform.machine(),
        "KernelRelease": platform.release(),
        "KernelVersion": platform.version(),
        "LongName": release.get("PRETTY_NAME", platform.system()),
        "OSConfigAgentVersion": AGENT_VERSION,
        "ShortName": release.get("ID", platform.system().lower()),
        "Version": release.get("VERSION_ID", platform.release()),
    }


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:  # macOS
        return {}


# Runs a host's startup script at each boot, as Compute Engine's guest agent does.


def script_of(metadata: Mapping[str, str], project_metadata: Mapping[str, str]) -> str:
    """Return the script; the node's own is used before that of its project."""
    return metadata.get(KEY) or project_metadata.get(KEY, "")


def run_startup_script(
    script: str, disk: HostDisk, programs: Programs, environment: Mapping[str, str]
) -> None:
    """Start the script; what it starts in turn ends with the host."""
    path = disk.folder / KEY
    path.write_text(script)
    path.chmod(0o700)
    _detach(programs.start(command_line(RUN, environment, disk.home, full=is_full(disk.home))))


def _detach(program: Program) -> None:
    """Close the simulator's ends of a program that nobody watches."""
    for descriptor in (program.stdin, program.stdout, program.stderr):
        if descriptor is not None:
            os.close(descriptor)


# A host's chips: their device files, and the server of the image that holds them from boot on.


def device_files(accelerator: str) -> tuple[str, ...]:
    """Return the device files of a host with chips of this type; none for a type that nobody knows."""
    chips = images.devices(accelerators.accelerator(accelerator))
    return (*chips, CONTROL) if chips and chips[0].startswith(VFIO) else chips


def server_of(runtime: str) -> str:
    """Return the name of the image's process that holds the chips; '' for none."""
    image = images.image(runtime)
    return image.holder if image else ""


def run_server(
    name: str, chips: Sequence[Path], disk: HostDisk, programs: Programs, environment: Mapping[str, str]
) -> None:
    """Start the image's server: a process with its name that has the chips open."""
    files = [path for path in chips if path.name[-1].isdigit()]
    opened = " ".join(f"{number}<>{shlex.quote(str(path))}" for number, path in enumerate(files, start=3))
    shell = [name, "-c", f"exec {opened}; {BECOME}", name, *FOREVER]
    _detach(programs.start(Command(LOGIN_SHELL, shell, environment, disk.home)))


# A host's crontab: the program of that name, and the @reboot lines, which run at each boot as cron does.
#
# The crontab of this machine's own user is never touched. Lines with a time do not run.


def install(folder: Path) -> Path:
    """Write the `PROGRAMS` below a host's folder, and return where they are, for PATH."""
    place = folder / "bin"
    place.mkdir(mode=0o700, exist_ok=True)
    for name, text in PROGRAMS.items():
        program = place / name
        if not program.exists() or program.read_text() != text:
            program.write_text(text)
            program.chmod(0o700)
    return place


def boot_commands(disk: HostDisk) -> list[str]:
    """Return the commands of the @reboot lines."""
    path = disk.folder / FILE
    lines = path.read_text(errors="surrogateescape").splitlines() if path.exists() else []
    words = (line.split(None, 1) for line in lines)
    return [parts[1] for parts in words if len(parts) == 2 and parts[0] == AT_BOOT]


def run(command: str, disk: HostDisk, programs: Programs, environment: Mapping[str, str]) -> None:
    """Start one command with cron's variables; what it starts in turn ends with the host."""
    user = getpass.getuser()
    path = f"{disk.folder / 'bin'}:{PATH}"
    variables = {**environment, "SHELL": SHELL, "PATH": path, "LOGNAME": user, "USER": user}
    line = f'exec >>"$TPUCTL_SIM_DISK/{LOG}" 2>&1 </dev/null; {command}'
    _detach(programs.start(Command(SHELL, [SHELL, "-c", line], variables, disk.home)))
