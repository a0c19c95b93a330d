"""Finds what works of runs whose records are missing: a lifecycle rule or a colleague deleted them.

A worker writes its status every 10 seconds, also after it was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl import clock, runs
from tpuctl.bucket_layout import STATUS_OF_RUN, STATUSES, RunPaths
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError, StateError, joined_hints
from tpuctl.flows.runs.evidence.decision import LOST_AFTER
from tpuctl.host.worker.records import WorkerStatus
from tpuctl.parallel import fanout, values
from tpuctl.runs import decode

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


@dataclass(frozen=True)
class LiveSign:
    """What the workers of a run's last attempt wrote that have not said their last word."""

    run: str
    attempt: int
    statuses: tuple[WorkerStatus, ...]
    """Of these workers, in order."""
    silence: float
    """Seconds since one of them wrote."""

    @property
    def tpu_uids(self) -> frozenset[str]:
        """The nodes on which they are."""
        return frozenset(status.tpu_uid for status in self.statuses)

    @property
    def since(self) -> str:
        """When the first of them began, by its host's clock."""
        return min(status.started or status.heartbeat for status in self.statuses)

    @property
    def reason(self) -> str:
        """What is known of the run."""
        first = self.statuses[0]
        return f"worker {first.worker} of attempt {self.attempt} was {first.state} {self.silence:.0f} s ago"


class RecordMissingError(StateError):
    """A run works, and its record or that of its attempt is gone."""

    def __init__(self, sign: LiveSign) -> None:
        super().__init__(
            f"Run '{sign.run}' still works, but its records are missing from the bucket: {sign.reason}.",
            hint=joined_hints(f"Stop it: tpuctl cancel {sign.run}", "What deletes objects: tpuctl doctor"),
            run=sign.run,
        )
        self.sign = sign


def sign_of(bucket: Bucket, run: str) -> LiveSign | None:
    """Return what works of one run, by one listing; None for nothing."""
    folder = RunPaths(run).folder
    return next(iter(live_signs(bucket, bucket.objects(folder, glob=f"{folder}{STATUSES}"))), None)


def live_signs(bucket: Bucket, listed: Iterable[Object]) -> list[LiveSign]:
    """Return a sign of each run with a status among listed objects that a worker at work wrote lately."""
    now, young = bucket.now(), dict[tuple[str, int], list["Object"]]()
    for item in listed:
        match = STATUS_OF_RUN.fullmatch(item.name)
        if match and (now - clock.parse(item.updated)).total_seconds() <= LOST_AFTER:
            young.setdefault((match[1], int(match[2])), []).append(item)
    signs = dict[str, LiveSign]()
    for (run, attempt), items in sorted(young.items()):
        read = values(fanout(lambda item: _status(bucket, item), items))
        live = sorted((status for status in read if status), key=lambda status: status.worker)
        if live:
            silence = min((now - clock.parse(item.updated)).total_seconds() for item in items)
            signs[run] = LiveSign(run, attempt, tuple(live), max(0.0, silence))
    return list(signs.values())


def _status(bucket: Bucket, item: Object) -> WorkerStatus | None:
    """Return the status of a worker at work; None for what is none, which such a worker replaces."""
    match = STATUS_OF_RUN.fullmatch(item.name)
    assert match
    attempt, worker = int(match[2]), int(match[3])
    try:
        data = bucket.read(item.name, runs.LARGEST[WorkerStatus])
        status = decode(data, WorkerStatus, item.name, lambda read: runs.check_status(read, attempt, worker))
    except (BadObjectError, NotFoundError):
        return None
    return None if status.is_finished else status
