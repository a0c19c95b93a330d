"""Whatever is broken, the TPU ends in time: each fault alone and every two, for --ttl and for --idle.

A whole keeper talks to services at the wire. Its time is theirs, so that a night takes a moment.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.host.keeper.wire import CREATED, HANG, FullDisk, Services, serving
from tpuctl.host import gcs
from tpuctl.host.keeper import records
from tpuctl.host.keeper.keeper import Keeper, Memory, MetadataServer

TTL, IDLE = "tpuctl-ttl", "tpuctl-idle"
BEGIN, USED_UNTIL, END = CREATED + 40, CREATED + 70, CREATED + 640
"""Faults begin while the host is in use. The TPU is to end in the midst of them, LENGTH after its creation or
its last use. Those without whose end nothing can be deleted end at END."""
LENGTH = 300.0
LATEST = 60.0
"""Seconds after that within which it is deleted."""
RESTART = 5.0
"""Seconds that the startup script waits before it starts a keeper that has ended."""
KILLS = 47.0
"""Seconds between two kills."""
HOURS = 36_000.0

BROKEN = {
    "bucket refuses": ("bucket", 403),
    "bucket is gone": ("bucket", 404),
    "bucket hangs": ("bucket", HANG),
    "guest attributes are not there": ("guests", 404),
    "guest attributes are refused": ("guests", 403),
    "metadata server fails": ("metadata", 503),
    "metadata server hangs": ("metadata", HANG),
    "api refuses": ("api", 403),
    "api says 404": ("api", 404),
    "api is busy": ("api", 429),
    "api fails": ("api", 500),
    "api hangs": ("api", HANG),
}
NEEDED = ("metadata", "api")
"""Services without which nothing can be deleted."""
CLOCKS = {
    "metadata server's clock is ahead": ("metadata's clock", HOURS),
    "metadata server's clock is behind": ("metadata's clock", -HOURS),
    "host's clock is ahead": ("host's clock", HOURS),
    "host's clock is behind": ("host's clock", -HOURS),
}
DISK_FULL, KILLED = "disk is full", "keeper is killed"
FAULTS = {**BROKEN, **CLOCKS, DISK_FULL: ("disk", 0), KILLED: ("keeper", 0)}
"""Name -> what it is a fault of, and which."""


class Killed(BaseException):
    """The keeper's process ends here."""


class Night:
    """One TPU with some faults."""

    def __init__(self, services: Services, memory: Path, end: str, faults: Iterable[str]) -> None:
        services.attributes |= {
            end: f"{LENGTH:.0f}s",
            "tpuctl-bucket": "b",
            "worker-network-endpoints": "a,b",
        }
        self.services = services
        self.faults = dict(FAULTS[fault] for fault in faults)
        self.memory = memory
        self.ends_idle = end == IDLE
        self.seen_use = self.killed = CREATED

    @property
    def due(self) -> float:
        return (self.seen_use if self.ends_idle else CREATED) + LENGTH

    @property
    def latest(self) -> float:
        return max(self.due, END if {*NEEDED} & {*self.faults} else 0) + LATEST

    def live(self) -> None:
        """Run one keeper after the other until the TPU is deleted, or should have been for long."""
        recording = []
        while not self.services.deleted and self.services.time < self.latest + 1000:
            try:
                self.act(self.services.time)
                keeper = Keeper(MetadataServer(), self.uses, 30.0, Memory(str(self.memory)), self.clock)
                recording.append(keeper)
                keeper.run()
                break  # the startup script starts no other
            except (Exception, Killed):
                pass
            self.services.time += RESTART
        for keeper in recording:
            if keeper._recording.is_alive():
                keeper._recording.join()

    def uses(self) -> list[str]:
        if self.services.time >= USED_UNTIL:
            return []
        self.seen_use = self.services.time
        return ["ada is logged in"]

    def clock(self) -> float:
        """The host's monotonic clock. By it faults begin and end, and the process does."""
        now = self.services.time
        if threading.current_thread() is threading.main_thread():
            self.act(now)
        return now

    def act(self, now: float) -> None:
        if self.services.deleted:
            raise Killed
        if now < BEGIN:
            return
        self.services.broken = {
            what: number
            for what, number in self.faults.items()
            if what in ("bucket", "guests") or (what in NEEDED and now < END)
        }
        self.services.ahead = self.faults.get("metadata's clock", 0.0)
        note = records.Note(1, records.iso(now), active=records.iso(self.seen_use))
        item = {"key": "keeper", "value": records.encode(note).decode()}
        self.services.guests = [{}, {"queryValue": {"items": [item]}}]
        if "keeper" in self.faults and now >= self.killed + KILLS:
            self.killed = now
            raise Killed

    def host_time(self) -> float:
        now = self.services.time
        return now + (self.faults.get("host's clock", 0.0) if now >= BEGIN else 0.0)


def wrong(end: str, faults: Iterable[str], folder: Path) -> str:
    """Return what went wrong in a night; nothing if the TPU ended in time, with a record of it."""
    with pytest.MonkeyPatch.context() as patch, serving(patch) as services:
        night = Night(services, folder / "memory", end, faults)
        night.memory.unlink(missing_ok=True)
        patch.setattr(gcs, "time", SimpleNamespace(time=night.host_time))
        if "disk" in night.faults:
            patch.setattr(sys, "stderr", FullDisk())
        night.live()
    if not services.deleted:
        return f"not deleted {services.time - night.due:.0f} s after its end"
    late = services.deleted[0] - night.due
    if late < 0 or services.deleted[0] > night.latest:
        return f"deleted {late:.0f} s after its end, {night.latest - night.due:.0f} s at most"
    if "bucket" not in night.faults and not services.objects:
        return "no record in the bucket"
    return ""


def nights(size: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return all nights with so many faults, each of something else."""
    chosen = [
        faults for faults in combinations(FAULTS, size) if len({FAULTS[fault][0] for fault in faults}) == size
    ]
    return [(end, faults) for end in (TTL, IDLE) for faults in chosen]


def judge(chosen: list[tuple[str, tuple[str, ...]]], folder: Path) -> None:
    verdicts = {f"{end}: {', '.join(faults)}": wrong(end, faults, folder) for end, faults in chosen}
    assert not [f"{night}: {verdict}" for night, verdict in verdicts.items() if verdict]


@pytest.mark.daily
def test_no_fault_alone_keeps_it_and_no_two_of_a_sample(tmp_path: Path) -> None:
    judge([*nights(0), *nights(1), *nights(2)[::25]], tmp_path)


@pytest.mark.slow
def test_no_two_faults_keep_it(tmp_path: Path) -> None:
    judge(nights(2), tmp_path)
