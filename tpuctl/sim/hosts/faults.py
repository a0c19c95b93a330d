"""Applies faults to a host that is up, and undoes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from tpuctl.sim.hosts.programs import processes
from tpuctl.sim.hosts.programs.processes import end_processes, freeze, thaw
from tpuctl.sim.state import write_private

EFFECTS: dict[str, frozenset[str]] = {
    "host-hang": frozenset({"silent", "frozen"}),
    "host-death": frozenset({"silent", "cut", "killed"}),
    "network-loss": frozenset({"silent", "cut", "offline"}),
    "ssh-refused": frozenset({"refusing"}),
    "wrong-host-key": frozenset({"other key"}),
    "disk-full": frozenset({"full"}),
}
"""Kind of fault -> what it does to a host."""

STATE = "host_faults.json"
"""In the host's folder: the effects in force, for the simulator that starts after a kill -9."""


class FaultyHost(Protocol):
    """What the effects use of a host."""

    mark: str

    async def silence(self) -> None:
        """Stop answering on its servers' sockets."""

    async def unsilence(self, *, cut: bool) -> None:
        """Answer again; with `cut`, connections from before are cut."""

    async def refuse_ssh(self) -> None:
        """Refuse new SSH connections."""

    async def accept_ssh(self) -> None:
        """Accept them again."""

    async def boot(self) -> None:
        """Start what starts at each boot."""

    def show_key(self, *, own: bool) -> None:
        """Present its own host key, or another."""

    def leaders(self) -> set[int]:
        """Return the process ids of the programs it has started."""

    @property
    def folder(self) -> Path:
        """Its folder on disk."""


class HostFaults:
    """The effects of faults on one host."""

    def __init__(self, host: FaultyHost) -> None:
        self._host = host
        self._lock = asyncio.Lock()
        self._effects: frozenset[str] = frozenset()
        self._begin: dict[str, Callable[[], Awaitable[None]]] = {
            "silent": host.silence,
            "frozen": lambda: freeze(host.mark, host.leaders),
            "killed": lambda: end_processes(host.mark.__eq__, host.leaders, 0),
            "refusing": host.refuse_ssh,
            "other key": lambda: _at_once(lambda: host.show_key(own=False)),
            "full": lambda: processes.fill(host.folder, host.mark, host.leaders),
        }
        self._end: dict[str, Callable[[], Awaitable[None]]] = {
            "frozen": lambda: thaw(host.mark, host.leaders),
            "killed": host.boot,
            "refusing": host.accept_ssh,
            "other key": lambda: _at_once(lambda: host.show_key(own=True)),
            "full": lambda: processes.free(host.folder, host.mark, host.leaders),
        }

    @property
    def offline(self) -> bool:
        """Whether the host has lost its network."""
        return "offline" in self._effects

    @property
    def full(self) -> bool:
        """Whether its disk is full."""
        return "full" in self._effects

    async def set_kinds(self, kinds: frozenset[str]) -> None:
        """Have exactly these kinds of faults in force: undo other effects, begin new ones."""
        async with self._lock:
            effects = frozenset().union(*(EFFECTS[kind] for kind in kinds))
            before, self._effects = self._effects, effects
            if effects == before:
                return
            self._save()
            for effect in sorted(before - effects, reverse=True):  # a host that boots has its network
                if effect == "silent":
                    await self._host.unsilence(cut="cut" in before)
                elif effect in self._end:
                    await self._end[effect]()
            for effect in sorted(effects - before, reverse=True):  # silent before killed and frozen
                if effect in self._begin:
                    await self._begin[effect]()

    async def recover(self) -> None:
        """Undo the effects that a killed simulator left on programs and disk; for a host that comes up."""
        path = self._host.folder / STATE
        if path.exists():
            for effect in json.loads(path.read_bytes()):
                if effect in ("frozen", "full"):
                    await self._end[effect]()
            path.unlink()

    async def clean_up(self) -> None:
        """Undo the effects that outlive the host; for a host that goes down."""
        async with self._lock:
            effects, self._effects = self._effects, frozenset()
            if "full" in effects:
                await self._end["full"]()
            (self._host.folder / STATE).unlink(missing_ok=True)

    def _save(self) -> None:
        if self._host.folder.exists():
            write_private(self._host.folder / STATE, json.dumps(sorted(self._effects)).encode())


async def _at_once(work: Callable[[], None]) -> None:
    work()
