"""Defines an event: a request, a state transition, a fault or a notice."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event; `tpuctl sim events --json` prints its JSON form."""

    kind: str
    """`request`, `transition`, `fault` or `notice`"""
    what: str
    """The method of a request (`CreateNode`, `objects.get`, `exec`), the new state of a transition, the kind
    of a fault, a notice's text."""
    resource: str
    """Full name of a node or queued resource, BUCKET/OBJECT, or NODE/worker."""
    detail: str = ""
    """Of a fault: its id and the method. Of an SSH request: the user or the command."""
    time: float = 0.0
    """Seconds since 1970 by the simulator's clock."""
    service: str = "tpu"
    """`tpu`, `storage`, `compute`, `billing`, `quotas`, `metadata`, `ssh` or `hosts`"""
    number: int = 0
    """1, 2, 3 ..., also over restarts."""
    body: dict[str, object] | None = None
    """Of a request that changes something: to the Cloud TPU API the request message as JSON, the same
    for gRPC and REST; to Compute Engine and Cloud Storage the JSON that was sent; of an upload the object's
    fields, never its content. Secrets are `***`; of a body that is too large there are size and hash."""
