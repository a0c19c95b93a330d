"""Logs the simulator's events in order: requests, transitions, faults, notices."""

from __future__ import annotations

from tpuctl.sim.events.event import Event
from tpuctl.sim.events.log import Events

__all__ = ["Event", "Events"]
