"""The simulator from the client's side: its process, control server, events and log."""

from __future__ import annotations

from tpuctl.cloud.simulator.cleanup import end_orphans, reset
from tpuctl.cloud.simulator.process import ensure, running, stop
from tpuctl.cloud.simulator.published import PublishedEndpoints

__all__ = ["PublishedEndpoints", "end_orphans", "ensure", "reset", "running", "stop"]
