"""The simulator from the client's side: its process, control server, events and log."""

from __future__ import annotations

from tpuctl.cloud.simulator.process import PublishedEndpoints, end_orphans, ensure, reset, running, stop

__all__ = ["PublishedEndpoints", "end_orphans", "ensure", "reset", "running", "stop"]
