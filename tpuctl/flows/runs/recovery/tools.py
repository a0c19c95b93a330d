"""Defines what a watcher works with: the clients, prices, and values that were given to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.recovery.authority import Limits
from tpuctl.nodes import Creation, Node, QueuedResource

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket


@dataclass(frozen=True)
class Tools:
    """What one watcher has."""

    bucket: Bucket
    data_bucket: str
    """Its name, for runs whose record does not say where their dataset is."""
    provider: Provider
    ssh: Ssh
    witnesses: Witnesses
    price_of: Callable[[Creation], Price]
    holder: str
    """Who this is, for other watchers to read."""
    report: Report
    values: Mapping[str, str] = field(default_factory=dict)
    """Variables that neither the bucket nor this machine has."""
    limits: Limits | None = None
    """What it may make for runs that this machine does not know; None for nothing."""
    node_price: Callable[[Node | QueuedResource], Price] = lambda _: unknown("nobody asked")
    recorded_price: Callable[[Node], RecordedPrice | None] = lambda _: None
    """Returns what a node costs per hour, for its record."""
