"""The simulator for other people's tests: a context manager, and pytest fixtures. See docs/testing.md."""

from __future__ import annotations

from tpuctl.testing.simulator import Endpoints, Simulator

__all__ = ["Endpoints", "Simulator"]
