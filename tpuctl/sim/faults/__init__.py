"""Faults that were asked for: the rules in force, which every server of the simulator consults."""

from __future__ import annotations

from tpuctl.sim.faults.fault import Fault
from tpuctl.sim.faults.registry import Faults
from tpuctl.sim.faults.rule import Rule

__all__ = ["Fault", "Faults", "Rule"]
