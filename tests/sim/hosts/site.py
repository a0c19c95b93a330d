"""A pool of simulated hosts on a loop in a thread, and the ways of real clients to them."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import fabric
import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.event_loops.thread import LoopThread
from tests.sim.guards import guard_of
from tpuctl.sim.hosts.pool import HostPool
from tpuctl.sim.records import Host

USER = "ada"
T = TypeVar("T")
_ADDRESSES = itertools.count(1)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class KeyPair:
    """An SSH key pair in files, as a user has one."""

    private: Path
    public: str

    def line(self, user: str = USER) -> str:
        """Return it as a line of `ssh-keys`."""
        return f"{user}:{self.public} {user}@laptop"


class Site:
    """A pool with its hosts, and the way to them."""

    def __init__(self, loop: LoopThread, folder: Path, key: KeyPair, aliases: bool | None) -> None:
        self.loop, self.key, self.clock, self.aliases = loop, key, Clock(), aliases
        self.folder = folder / "hosts"
        self.projects: dict[str, dict[str, str]] = {}
        self.closed: set[str] = set()
        """The projects whose firewall lets no SSH from outside in."""
        self.pools: list[HostPool] = []
        self.pool = self.new_pool()

    def another(self) -> Site:
        """Return a site over the same files, as there is after a kill -9; this one still has its ports."""
        successor = Site(self.loop, self.folder.parent, self.key, self.aliases)
        self.pools += successor.pools
        return successor

    def close(self) -> None:
        """End every pool, also those that a crash has ended for the test: else their sockets stay open."""
        for pool in reversed(self.pools):
            self.loop.run(pool.close(grace=0.2))

    def new_pool(self, publish_delay: float = 0.0) -> HostPool:
        """Return a pool over the same files, as a restarted simulator would."""
        pool = HostPool(
            self.folder,
            lambda host: {"ASSEMBLY": host.hostname},
            guard_of(self.folder.parent),
            project_metadata=lambda project: self.projects.get(project, {}),
            aliases=self.aliases,
            admits_ssh=lambda project: project not in self.closed,
            key_delay=5.0,
            publish_delay=publish_delay,
            clock=self.clock,
        )
        self.pools.append(pool)
        return pool

    def up(self, hosts: list[Host], metadata: dict[str, str] | None = None) -> list[Host]:
        """Start hosts that accept the user's key."""
        self.loop.run(self.pool.start(hosts, {"ssh-keys": self.key.line(), **(metadata or {})}))
        return hosts

    def set_project(self, name: str, metadata: dict[str, str]) -> None:
        """Change what all hosts of a project see."""
        self.projects[name] = metadata
        self.loop.loop.call_soon_threadsafe(self.pool.project_changed, name)

    def stop(self, hosts: list[Host], *, keep_disk: bool = False, grace: float = 30.0) -> None:
        self.loop.run(self.pool.stop(hosts, keep_disk=keep_disk, grace=grace))

    def dial(self, host: Host) -> tuple[str, int]:
        """Return where the host's SSH server listens."""
        address, port = json.loads(self.pool.hosts_file.read_text())[host.address]
        return address, port

    def fabric(self, host: Host, user: str = USER, key: KeyPair | None = None) -> fabric.Connection:
        """Return a fabric connection that knows no host key yet."""
        address, port = self.dial(host)
        return fabric.Connection(
            address,
            user=user,
            port=port,
            config=fabric.Config(
                overrides={"load_ssh_configs": False, "run": {"in_stream": False, "hide": True}}
            ),
            connect_kwargs={
                "key_filename": str((key or self.key).private),
                "allow_agent": False,
                "look_for_keys": False,
            },
        )


def hosts_of(count: int = 1, accelerator: str = "v3-8", *, preemptible: bool = False) -> list[Host]:
    """Return the hosts of a node that no other test has."""
    number = next(_ADDRESSES)
    peers = tuple(f"127.78.{number}.{worker + 1}" for worker in range(count))
    return [
        Host(
            node="projects/demo/locations/europe-west4-a/nodes/alpha",
            node_uid=str(7_000_000 + number),
            worker=worker,
            address=peers[worker],
            hostname=f"t1v-n-{number:08x}-w-{worker}",
            accelerator_type=accelerator,
            runtime_version="tpu-ubuntu2204-base",
            peers=peers,
            preemptible=preemptible,
        )
        for worker in range(count)
    ]


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Look until something has happened in another process."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def new_key(path: Path) -> KeyPair:
    """Make an ed25519 key pair as ssh-keygen would."""
    key = Ed25519PrivateKey.generate()
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(path, public.decode())


def published_key(site: Site, host: Host) -> paramiko.PKey:
    """Return the host key as its guest attributes publish it."""
    items = {(item.namespace, item.key): item.value for item in site.pool.guest_attributes(host)}
    return paramiko.Ed25519Key(data=base64.b64decode(items["hostkeys", "ssh-ed25519"]))


def program(name: str) -> str:
    """Return the path of a program, or skip the test without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on PATH")
    return path
