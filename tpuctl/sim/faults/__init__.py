"""Keeps the injected faults; every server of the simulator asks the registry whether one fires."""

from __future__ import annotations

from tpuctl.sim.faults.fault import Fault
from tpuctl.sim.faults.grpc_fault import grpc_fault
from tpuctl.sim.faults.registry import FaultRegistry

__all__ = ["Fault", "FaultRegistry", "grpc_fault"]
