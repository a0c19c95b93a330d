"""The states of a node: which calls are allowed in each, and which states an operation leads through."""

from __future__ import annotations

from dataclasses import dataclass

ALLOWED: dict[str, frozenset[str]] = {
    # that a node can be deleted while it is being created is ours: no source was found
    "CREATING": frozenset({"delete", "preempt"}),
    "READY": frozenset({"delete", "preempt", "update", "stop", "get guest attributes"}),
    "STOPPING": frozenset(),
    "STOPPED": frozenset({"delete", "update", "start"}),
    "STARTING": frozenset(),
    "DELETING": frozenset(),
    "PREEMPTED": frozenset({"delete"}),
}
"""State -> calls that it allows; getting and listing always are."""


@dataclass(frozen=True)
class Transition:
    """What a long-running operation does to its node's state; None leaves it alone."""

    method: str
    during: str | None
    after: str | None


TRANSITIONS: dict[str, Transition] = {
    "create": Transition("CreateNode", "CREATING", "READY"),
    "delete": Transition("DeleteNode", "DELETING", None),
    "update": Transition("UpdateNode", None, None),
    "stop": Transition("StopNode", "STOPPING", "STOPPED"),
    "start": Transition("StartNode", "STARTING", "READY"),
}
"""The operation's verb, as its metadata shows it -> its method and states."""

CANCELLABLE = frozenset({"create"})
"""Verbs whose operation a cancel ends; other operations go on to their end (which operations Google's API
can cancel is not documented)."""
