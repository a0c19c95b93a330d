"""Says values of records as people read them: times, states, amounts, several of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from tpuctl import clock, durations
from tpuctl.display.markup import Coloured
from tpuctl.nodes import NodeState
from tpuctl.runs import FAILED, LOST, MAINTENANCE, PREEMPTED, STOPPED, SUCCEEDED
from tpuctl.worker.records import PREPARING, QUEUED, RUNNING

COLOURS = {
    "green": (SUCCEEDED, RUNNING, NodeState.READY, "ACTIVE"),
    "red": (FAILED, LOST, PREEMPTED, NodeState.PREEMPTED, "SUSPENDED", "FAILED"),
    "amber": (
        MAINTENANCE, STOPPED, QUEUED, PREPARING, NodeState.CREATING, NodeState.STARTING, NodeState.REPAIRING,
        NodeState.STOPPING, NodeState.DELETING, "WAITING", "PROVISIONING", "SUSPENDING",
    ),
}  # fmt: skip
"""Colour -> states of nodes, requests and runs; others are grey."""
_COLOUR_OF = {str(state): colour for colour, states in COLOURS.items() for state in states}


def state(text: str) -> Coloured:
    """Return a state with its colour."""
    return Coloured(text, _COLOUR_OF.get(text, "grey"))


def cell(name: str, value: object) -> object:
    """Return what a table shows of the field `name` of a record; numbers stay numbers."""
    if name == "state":
        return state(str(value))
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, (int, float)):
        return durations.text(value) if name.endswith("seconds") else value
    if isinstance(value, datetime):
        return clock.iso(value)
    if isinstance(value, timedelta):
        return durations.text(value.total_seconds())
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" if item != "" else str(key) for key, item in value.items())
    if isinstance(value, (tuple, list, set, frozenset)):
        return ", ".join(str(_said(item)) for item in value)
    return _said(value)


def _said(value: object) -> object:
    """Return a value alone: of bytes the text, or their number where they are none."""
    if not isinstance(value, bytes):
        return "" if value is None else str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"
