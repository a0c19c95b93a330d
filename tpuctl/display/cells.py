"""Says values of records as people read them: times, states, amounts, several of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from tpuctl import clock, durations
from tpuctl.display.markup import Coloured
from tpuctl.nodes import NodeState
from tpuctl.runs import FAILED, LOST, MAINTENANCE, PREEMPTED, STOPPED, SUCCEEDED
from tpuctl.text.sizes import format_bytes
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

STATES, SIZE = ("state", "outcome"), "bytes"
"""Names of fields that are states, and of one that is a size."""
MOST_CHARACTERS = 300
"""Of a value, which may be a text of megabytes."""


def state(text: str) -> Coloured:
    """Return a state with its colour."""
    return Coloured(text, _COLOUR_OF.get(text, "grey"))


def cell(name: str, value: object) -> object:
    """Return what a table shows of the field `name` of a record; numbers stay numbers."""
    if name in STATES:
        return state(str(value))
    if isinstance(value, bool):
        return "yes" if value else ""
    if name == SIZE and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, (int, float)):
        return durations.text(value) if name.endswith("seconds") else value
    if isinstance(value, datetime):
        return clock.iso(value)
    if isinstance(value, timedelta):
        return durations.text(value.total_seconds())
    text = _text(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _text(value: object) -> str:
    """Return a value, or several, on one line: of bytes their text, or their number where they are none."""
    if isinstance(value, Mapping):
        pairs = ((str(key), _text(item)) for key, item in value.items())
        return ", ".join(f"{key}={text}" if text else key for key, text in pairs)
    if isinstance(value, (tuple, list, set, frozenset)):
        return ", ".join(map(_text, value))
    if not isinstance(value, bytes):
        return "" if value is None else str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"
