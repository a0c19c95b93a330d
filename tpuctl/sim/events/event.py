"""One thing that happened."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened; its form in JSON is what `tpuctl sim events --json` shows."""

    kind: str
    """`request`, `transition`, `fault` or `notice`"""
    what: str
    """The method of a request (`CreateNode`, `objects.get`, `exec`), the new state of a transition, the kind
    of a fault, a notice's text."""
    resource: str
    """Full name of a node or queued resource, BUCKET/OBJECT, or NODE/worker."""
    detail: str = ""
    """Of a fault: its id, and the method it hit. Of a notice or an SSH request: what it is about."""
    time: float = 0.0
    """Seconds since 1970 by the simulator's clock."""
    service: str = "tpu"
    """`tpu`, `storage`, `compute`, `metadata`, `ssh` or `hosts`"""
    number: int = 0
    """1, 2, 3 ..., also over restarts."""
