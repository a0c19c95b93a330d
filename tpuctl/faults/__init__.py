"""Describes faults that the simulator can inject: kinds, options, requests and scenario files."""

from __future__ import annotations

from tpuctl.faults.fields import Field, Value
from tpuctl.faults.kinds import KINDS, LIMITS, Kind, kind_of
from tpuctl.faults.scenarios import Request, Scenario, load_scenario, read_scenario, request

__all__ = [
    "KINDS",
    "LIMITS",
    "Field",
    "Kind",
    "Request",
    "Scenario",
    "Value",
    "kind_of",
    "load_scenario",
    "read_scenario",
    "request",
]
