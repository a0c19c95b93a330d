"""Defines the records of runs: how one is, how it ended, its log and what it has cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.client.records import moment
from tpuctl.display import Cost, Record, cost_of
from tpuctl.flows.runs import outcome

if TYPE_CHECKING:
    from tpuctl.errors import TpuctlError
    from tpuctl.flows.runs.attempt_costs import AttemptCost
    from tpuctl.flows.runs.pull import PullResult
    from tpuctl.runs import Verdict


@dataclass(frozen=True)
class RunEnd(Record):
    """How a run ended, and the evidence."""

    run: str
    outcome: str
    """`succeeded`, `failed`, `preempted`, `maintenance`, `stopped` or `lost`."""
    evidence: str
    exit_code: int | None
    """The failed script's own."""
    attempt: int
    ended: datetime | None
    cause: str
    """Why it failed, where that was recognized: `out of memory`."""
    last_line: str
    """The last line that the failed script printed."""
    stopped_by: str
    """Who stopped it; empty for any other end."""
    is_restarted: bool
    """Whether another attempt is to follow: `client.watch` starts it."""
    error: TpuctlError | None
    """What `wait(check=True)` raises; None for success."""

    @property
    def succeeded(self) -> bool:
        """Whether every worker's script ended with exit code 0."""
        return self.error is None

    @classmethod
    def _of(cls, verdict: Verdict) -> RunEnd:
        return cls(
            run=verdict.run,
            outcome=verdict.outcome,
            evidence=verdict.evidence,
            exit_code=verdict.exit_code,
            attempt=verdict.attempt,
            ended=moment(verdict.ended or verdict.decided),
            cause=verdict.cause,
            last_line=verdict.last_line,
            stopped_by=verdict.stopped_by,
            is_restarted=verdict.restarts,
            error=outcome.error_of(verdict),
        )


@dataclass(frozen=True)
class AttemptInfo(Record):
    """One start of a run on one machine, and what it has cost."""

    number: int
    node: str
    """Empty where it was not recorded."""
    zone: str
    accelerator: str
    began: datetime | None
    """None where it never used its node, or nobody knows when."""
    ended: datetime | None
    """None while it goes on."""
    duration: timedelta | None
    """None where nobody knows."""
    price_per_hour: Cost
    cost: Cost

    @classmethod
    def _of(cls, attempt: AttemptCost) -> AttemptInfo:
        tpu, length = attempt.tpu, attempt.seconds
        return cls(
            attempt.attempt, tpu.name if tpu else "", tpu.zone if tpu else "", tpu.accelerator if tpu else "",
            moment(attempt.began), moment(attempt.ended),
            None if length is None else timedelta(seconds=length),
            cost_of(attempt.price), cost_of(attempt.cost.rounded()),
        )  # fmt: skip


@dataclass(frozen=True)
class LogLine(Record):
    """One line that a worker's script printed."""

    worker: int
    time: datetime | None
    """When its end reached the bucket, by the bucket's clock."""
    text: str
    """Without its line end; what is no UTF-8 is replaced."""


LogCallback = Callable[[LogLine], None]
"""Takes a line of a log as it comes."""


@dataclass(frozen=True)
class RunCopy(Record):
    """The copy of a run in a folder of this machine."""

    run: str
    folder: Path
    files: int
    bytes: int
    kept: int
    """Files that were there already, with the right checksum."""
    checkpoints: tuple[str, ...]
    """Names of the committed ones, below the run's folder."""
    unfinished: tuple[tuple[str, str], ...]
    """Checkpoints that are not complete, and so not fetched, each with the reason."""
    refused: tuple[tuple[str, str], ...]
    """Objects that are not written to this disk, each with the reason."""

    @classmethod
    def _of(cls, run: str, result: PullResult) -> RunCopy:
        return cls(
            run,
            result.folder,
            result.files,
            result.size,
            result.unchanged,
            tuple(each.name for each in result.checkpoints),
            tuple((each.name, each.reason) for each in result.unfinished),
            tuple((each.name, each.reason) for each in result.refused),
        )


@dataclass(frozen=True)
class RunResult(Record):
    """What `run_script` has left: how the run ended, its files, and its TPU."""

    end: RunEnd
    copy: RunCopy
    deleted: tuple[str, ...]
    """The TPU that was made for it, where that is deleted."""
    kept: str
    """Why a TPU stays, as a sentence; empty where none does."""


@dataclass(frozen=True)
class CostGroup(Record):
    """What one run, node, user or label has cost."""

    key: str
    attempts: int
    duration: timedelta
    cost: Cost


@dataclass(frozen=True)
class CostReport(Record):
    """What TPUs have cost since a moment: an estimate, and no bill."""

    since: datetime
    until: datetime
    groups: tuple[CostGroup, ...]
    total: Cost
    missing: tuple[str, ...]
    """What is missing in it."""
