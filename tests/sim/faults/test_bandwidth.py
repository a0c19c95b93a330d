"""How long bytes wait for the bandwidth that the transfers of one fault share."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl.sim import faults
from tpuctl.sim.faults import BandwidthLimits, Fault, FaultRegistry


class Line:
    """Transfers whose clock the test moves, and how long each waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.limits = BandwidthLimits()
        self.waits: list[float] = []
        monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(faults, "asyncio", SimpleNamespace(sleep=self._sleep))

    def send(self, fault: Fault, size: int, *, up: bool = True) -> None:
        asyncio.run(self.limits.send(fault, size, up=up))

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(monkeypatch)


def slow(**options: Any) -> tuple[Fault, Fault]:
    """Return two faults with these options."""
    registry = FaultRegistry(clock=lambda: 0.0)
    return registry.add("gcs-slow", **options), registry.add("gcs-slow", **options)


def test_bytes_wait_for_those_before_them(line: Line) -> None:
    fault, _ = slow(bandwidth=100)
    line.send(fault, 50)
    line.send(fault, 100)
    line.now += 1.25
    line.send(fault, 25)
    assert line.waits == [0.5, 1.5, 0.5]


def test_time_in_which_nothing_was_sent_is_lost(line: Line) -> None:
    fault, _ = slow(bandwidth=100)
    line.send(fault, 50)
    line.now += 60
    line.send(fault, 50)
    assert line.waits == [0.5, 0.5]


def test_directions_and_faults_do_not_share_a_bandwidth(line: Line) -> None:
    one, other = slow(bandwidth=100)
    line.send(one, 100)
    line.send(one, 200, up=False)
    line.send(other, 300)
    line.send(one, 100)
    assert line.waits == [1.0, 2.0, 3.0, 2.0]


def test_without_a_bandwidth_nothing_waits(line: Line) -> None:
    fault, _ = slow(latency=1)
    line.send(fault, 1 << 40)
    assert line.waits == []
