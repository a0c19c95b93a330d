"""What can be wrong with a host that is up, and how it is made so and mended: asked for by faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from tpuctl.sim.hosts.programs import disk_full
from tpuctl.sim.hosts.programs.processes import end_processes, freeze, thaw
from tpuctl.sim.state.private_file import write_private

EFFECTS: dict[str, frozenset[str]] = {
    "host-hang": frozenset({"silent", "frozen"}),
    "host-death": frozenset({"silent", "cut", "killed"}),
    "network-loss": frozenset({"silent", "cut", "offline"}),
    "ssh-refused": frozenset({"refusing"}),
    "wrong-host-key": frozenset({"other key"}),
    "disk-full": frozenset({"full"}),
}
"""Kind of fault -> what it does to a host."""

KEPT = "troubles.json"
"""In the host's folder: what is wrong, for a simulator that comes after a kill -9."""


class Patient(Protocol):
    """What of a host troubles can touch."""

    mark: str

    async def silence(self) -> None:
        """Answer nothing on its servers' sockets any more."""

    async def speak(self, *, cut: bool) -> None:
        """Answer again; with `cut`, connections from before are cut."""

    async def refuse_ssh(self) -> None:
        """Refuse new SSH connections."""

    async def accept_ssh(self) -> None:
        """Accept them again."""

    def show_key(self, *, own: bool) -> None:
        """Present its own host key, or another."""

    def leaders(self) -> set[int]:
        """Return the process ids of the programs it has started."""

    @property
    def folder(self) -> Path:
        """Its folder on disk."""


class Troubles:
    """What is wrong with one host."""

    def __init__(self, host: Patient) -> None:
        self._host = host
        self._turn = asyncio.Lock()
        self._now: frozenset[str] = frozenset()
        self._begin: dict[str, Callable[[], Awaitable[None]]] = {
            "silent": host.silence,
            "frozen": lambda: freeze(host.mark, host.leaders),
            "killed": lambda: end_processes(host.mark.__eq__, host.leaders, 0),
            "refusing": host.refuse_ssh,
            "other key": lambda: _at_once(lambda: host.show_key(own=False)),
            "full": lambda: disk_full.fill(host.folder, host.mark, host.leaders),
        }
        self._end: dict[str, Callable[[], Awaitable[None]]] = {
            "frozen": lambda: thaw(host.mark, host.leaders),
            "refusing": host.accept_ssh,
            "other key": lambda: _at_once(lambda: host.show_key(own=True)),
            "full": lambda: disk_full.free(host.folder, host.mark, host.leaders),
        }

    @property
    def offline(self) -> bool:
        """Whether its programs must reach nothing."""
        return "offline" in self._now

    @property
    def full(self) -> bool:
        """Whether nothing more can be written."""
        return "full" in self._now

    async def settle(self, kinds: frozenset[str]) -> None:
        """Have exactly these kinds of faults be in force."""
        async with self._turn:
            wanted = frozenset().union(*(EFFECTS[kind] for kind in kinds))
            before, self._now = self._now, wanted
            if wanted == before:
                return
            self._keep()
            for effect in sorted(before - wanted):
                if effect == "silent":
                    await self._host.speak(cut="cut" in before)
                elif effect in self._end:
                    await self._end[effect]()
            for effect in sorted(wanted - before, reverse=True):  # silent before killed and frozen
                if effect in self._begin:
                    await self._begin[effect]()

    async def recover(self) -> None:
        """Undo what a killed simulator has left on programs and disk; for a host that comes up."""
        path = self._host.folder / KEPT
        if path.exists():
            for effect in json.loads(path.read_bytes()):
                if effect in ("frozen", "full"):
                    await self._end[effect]()
            path.unlink()

    async def leave(self) -> None:
        """Mend what outlives the host: for one that goes down."""
        async with self._turn:
            left, self._now = self._now, frozenset()
            if "full" in left:
                await self._end["full"]()
            (self._host.folder / KEPT).unlink(missing_ok=True)

    def _keep(self) -> None:
        if self._host.folder.exists():
            write_private(self._host.folder / KEPT, json.dumps(sorted(self._now)).encode())


async def _at_once(work: Callable[[], None]) -> None:
    work()
