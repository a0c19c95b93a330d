"""Defines what run.json says about restarts, and the lease of who restarts a run now."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

import msgspec

from tpuctl.bucket_objects import AttemptNumber, Count, Label, Line, ResourceName
from tpuctl.nodes import NodeSpec

MOST_ZONES = 100
SCHEMA = 1


class Machine(NodeSpec, frozen=True):
    """The machine on which a run is restarted, as `tpuctl up` is asked for one.

    Metadata and startup script are the user's own; runs.NOT_STORED for what looks like a secret.
    """

    accelerator: Label
    zones: Annotated[tuple[ResourceName, ...], msgspec.Meta(min_length=1, max_length=MOST_ZONES)]
    """In the order in which they are tried."""
    spot: bool
    runtime: Label
    owner: Label
    """The account whose machine it is."""
    framework: Label = "tensorflow"
    queued: bool = False
    """Whether it is made by a queued resource."""
    slices: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    subnetworks: Annotated[Mapping[Label, Label], msgspec.Meta(max_length=MOST_ZONES)] = {}
    """Region -> subnetwork, in the place of `subnetwork`, where the zones are in several regions."""
    labels: Annotated[Mapping[Label, Label], msgspec.Meta(max_length=64)] = {}
    """Besides tpuctl's own."""
    ttl: Count = 0
    """Seconds from its creation to its end; 0 for no end."""
    idle: Count = 0
    """Seconds without use after which it ends; 0 for never."""
    max_price: Annotated[str, msgspec.Meta(pattern=r"\A([0-9]{1,9}(\.[0-9]{1,9})?)?\Z")] = ""
    """Most that it may cost per hour, in the currency of the price list; empty for no limit."""

    @property
    def ceiling(self) -> Decimal | None:
        """Most that it may cost per hour; None for no limit."""
        return Decimal(self.max_price) if self.max_price else None


class Restarts(msgspec.Struct, frozen=True):
    """How often a run is started again by itself."""

    after_loss: Count | None = 0
    """After a preemption, a maintenance or the loss of a host; None without end."""
    after_failure: Count = 0
    """After a failure of the script."""

    def __bool__(self) -> bool:
        return self.after_loss != 0 or self.after_failure != 0


class Lease(msgspec.Struct, frozen=True):
    """lease.json of an attempt: who starts it. It is late once nobody has written it for `seconds`."""

    run: Label
    attempt: AttemptNumber
    token: Label
    """Random: which process holds it."""
    holder: Line
    """Who that is, for people to read."""
    seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)]
    is_over: bool = False
    """Whether the attempt was started, or given up."""
    schema: int = SCHEMA
