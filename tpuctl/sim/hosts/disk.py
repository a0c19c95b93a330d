"""Creates the folder of a simulated host: its home, tmp, devices, keys and guest attributes."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import asyncssh

from tpuctl.sim.hosts.metadata.guest_attributes import GuestAttributes
from tpuctl.sim.records import Host
from tpuctl.sim.state.private_file import write_private

HOST_KEY = "ssh_host_ed25519_key"
GUEST_ATTRIBUTES = "guest.json"
ACCESS_TOKEN = "access_token"  # noqa: S105  the name of a file


class HostDisk:
    """One host's folder; it outlives a restart of the simulator and a stop of the node."""

    def __init__(self, pool: Path, host: Host) -> None:
        self.folder = pool / host.node_uid / f"w{host.worker}"
        self.home = self.folder / "home"
        self.tmp = self.folder / "tmp"
        self.python = self.folder / "python"
        self.view = self.folder / "root"
        """Stands for the root of its file system where a program looks for what the host has of its own."""
        self.etc_hosts = self.folder / "etc-hosts"
        self.access_token = self.folder / ACCESS_TOKEN
        self.guest = GuestAttributes(self.folder / GUEST_ATTRIBUTES)

    def exists(self) -> bool:
        """Return whether the host has been started before."""
        return (self.folder / HOST_KEY).exists()

    def prepare(self) -> None:
        """Create what is missing, readable by this user alone."""
        for folder in (self.folder.parent, self.folder, self.home, self.tmp, self.view):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.view / "tmp").is_symlink():
            (self.view / "tmp").symlink_to(Path("..", self.tmp.name))

    def create_devices(self, names: Iterable[str]) -> list[Path]:
        """Create device files, such as /dev/accel0, as files of the host; return where they are."""
        paths = [self.view / name.lstrip("/") for name in names]
        for path in paths:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.touch(mode=0o666)
        return paths

    def write_etc_hosts(self, text: str) -> None:
        """Write /etc/hosts in place: programs that are up see it through a mount of this very file."""
        self.etc_hosts.write_text(text)
        self.etc_hosts.chmod(0o644)

    def host_key(self) -> asyncssh.SSHKey:
        """Return the host's private key; the first call makes it."""
        path = self.folder / HOST_KEY
        try:
            return asyncssh.import_private_key(path.read_bytes())
        except FileNotFoundError:
            key = asyncssh.generate_private_key("ssh-ed25519")
            write_private(path, key.export_private_key())
            return key

    def delete(self) -> None:
        """Delete everything, the node's folder with its last host."""
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.folder.parent.rmdir()
        except OSError:  # it holds other hosts of the node
            pass
