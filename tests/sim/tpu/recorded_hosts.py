"""Hosts that only record calls, and a clock that only `advance` moves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tpuctl.sim.records import GuestAttribute, Host, Notices


class RecordedHosts:
    """Hosts without servers: they record calls; `failure` lets a start fail, `hold` lets calls wait."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.finished = 0
        """Starts and stops that were neither cancelled nor failed."""
        self.metadata: dict[str, dict[str, str]] = {}
        self.up: dict[str, Host] = {}
        self.notices: list[tuple[str, str, bool]] = []
        """Hostname, maintenance event, preempted."""
        self.hold: asyncio.Event | None = None
        self.failure: Exception | None = None

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        self.calls.append(("start", hosts[0].node_id))
        if self.failure:
            raise self.failure
        if self.hold:
            await self.hold.wait()
        self.metadata[hosts[0].node] = metadata
        self.up.update({host.address: host for host in hosts})
        self.finished += 1

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool, grace: float = 30.0) -> None:
        self.calls.append(("stop" if keep_disk else "remove", hosts[0].node_id))
        if self.hold:
            await self.hold.wait()
        for host in hosts:
            self.up.pop(host.address, None)
        self.finished += 1

    async def update_metadata(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None:
        self.calls.append(("metadata", hosts[0].node_id))
        self.metadata[hosts[0].node] = metadata

    async def announce(self, hosts: Sequence[Host], notices: Notices) -> None:
        self.notices += [(host.hostname, notices.maintenance_event, notices.preempted) for host in hosts]

    def guest_attributes(self, host: Host) -> list[GuestAttribute]:
        return [
            GuestAttribute("hostkeys", "ssh-ed25519", f"AAAA{host.worker}"),
            GuestAttribute("guestInventory", "Hostname", host.hostname),
        ]


class ManualTime:
    """A clock that `advance` moves, and `sleep` by that clock."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self._moved = asyncio.Event()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            await self._moved.wait()

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        self._moved.set()
        self._moved = asyncio.Event()
