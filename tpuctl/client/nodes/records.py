"""Defines the records of nodes: what is known of one, and how a command or a copy ended on its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tpuctl.display import Cost, Record
from tpuctl.errors import TpuctlError


@dataclass(frozen=True)
class NodeInfo(Record):
    """What is known of a TPU, or of a request for one that waits in the queue."""

    name: str
    zone: str
    project: str
    accelerator: str
    hosts: int
    """0 while it is not there yet."""
    state: str
    """As the provider names it: `READY`."""
    spot: bool
    runtime: str
    created: datetime | None
    owner: str
    """Whose it is; empty if nobody knows."""
    run: str
    """The run that works there; empty for none."""
    expires: datetime | None
    """When it deletes itself; None for never."""
    price_per_hour: Cost
    cost_so_far: Cost | None
    """At most, since it was created; None for what has no node yet."""
    bills: bool
    """Whether it bills by the hour now."""
    addresses: tuple[str, ...]
    labels: Mapping[str, str]
    queued_resource: str
    """The request in the queue that it is, or is of; empty for a node that was created directly."""
    notes: tuple[str, ...]
    """What its user has to know: ill health, maintenance, why it waits."""


@dataclass(frozen=True)
class WorkerResult(Record):
    """How a command ended on one worker."""

    worker: int
    exit_code: int | None
    """128 and the number after a signal; None where the host was lost."""
    stdout: str
    """The last 256 kB."""
    stderr: str
    error: TpuctlError | None
    """Why it did not run to its end; None if it did."""


@dataclass(frozen=True)
class CommandResult(Record):
    """How a command ended on each worker."""

    node: str
    command: tuple[str, ...]
    workers: tuple[WorkerResult, ...]

    @property
    def exit_code(self) -> int:
        """The worst one: 8 for a host that was lost, else the highest."""
        lost = [worker.error.exit_code for worker in self.workers if worker.error]
        return max(lost or [worker.exit_code or 0 for worker in self.workers])


@dataclass(frozen=True)
class RequestInfo(Record):
    """A request that would be sent."""

    method: str
    url: str
    body: object
    """As JSON; None for none."""


PathLike = str | Path
