"""Defines the records of runs: how one is, how it ended, its log, its metrics and what it has cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.client.records import Cost, Record, moment
from tpuctl.flows.runs import outcome

if TYPE_CHECKING:
    from tpuctl.errors import TpuctlError
    from tpuctl.flows.runs.attempt_costs import AttemptCost
    from tpuctl.flows.runs.metrics import Curves
    from tpuctl.flows.runs.pull import PullResult
    from tpuctl.flows.runs.summaries import Summary
    from tpuctl.runs import Verdict


@dataclass(frozen=True)
class RunInfo(Record):
    """One line about a run."""

    name: str
    state: str
    """`queued`, `running`, `succeeded`, `failed`, ...: as 'tpuctl runs' shows it."""
    submitted: datetime
    """By the bucket's clock."""
    ended: datetime | None
    """None while it goes on."""
    duration: timedelta
    """From its submission to its end, or until now."""
    accelerator: str
    node: str
    """Empty before its first attempt."""
    zone: str
    dataset: str
    """NAME/VERSION; empty without one."""
    exit_code: int | None
    reason: str
    """The evidence of its end, or why its state is not known."""
    cost: Cost
    submitter: str
    attempt: int
    """The number of the last one; 0 where it is not known."""
    tags: Mapping[str, str]
    slices: int = 1
    """Nodes of the accelerator that its last attempt spans."""

    @classmethod
    def _of(cls, summary: Summary) -> RunInfo:
        submitted = moment(summary.submitted)
        assert submitted
        return cls(
            name=summary.run,
            state=summary.state,
            submitted=submitted,
            ended=moment(summary.ended),
            duration=timedelta(seconds=summary.seconds),
            accelerator=summary.accelerator,
            node=summary.node,
            zone=summary.zone,
            dataset=summary.dataset,
            exit_code=summary.exit_code,
            reason=summary.reason,
            cost=Cost._of(summary.cost),
            submitter=summary.submitter,
            attempt=summary.attempt,
            tags=dict(summary.notes.tags) if summary.notes else {},
            slices=summary.slices,
        )


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
            Cost._of(attempt.price), Cost._of(attempt.cost.rounded()),
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
class Point(Record):
    """A value of a metric."""

    step: int
    value: float
    """May be infinite, or no number."""
    time: float
    """Seconds since 1970, by the host's clock."""


@dataclass(frozen=True)
class Curve(Record):
    """The values of a metric, by their steps."""

    metric: str
    unit: str
    """`ms`, or empty for a plain number."""
    points: tuple[Point, ...]
    """Steps rise; those that a restart did again have its values."""

    @property
    def last(self) -> Point:
        """The newest value."""
        return self.points[-1]


@dataclass(frozen=True, repr=False)
class Metrics(Record):
    """What a run has reported for TensorBoard: loss and accuracy, also of the validation, and step time."""

    run: str
    curves: Mapping[str, Curve]
    """By the metric: `loss`, `accuracy`, `val_loss`, `val_accuracy`, `step_time`."""
    problems: tuple[str, ...]
    """Why event files could not be read."""

    def __repr__(self) -> str:
        """Return a line for each metric: its first, last, lowest and highest value."""
        from tpuctl.display.markup import metrics_text  # charts: only where they are shown

        return metrics_text(self.run, self.curves, self.problems)

    def _repr_html_(self) -> str:
        from tpuctl.display.markup import metrics_html

        return metrics_html(self.run, self.curves, self.problems)

    @classmethod
    def _of(cls, run: str, read: Curves) -> Metrics:
        curves = {
            name: Curve(
                name, curve.unit, tuple(Point(each.step, each.value, each.wall_time) for each in curve.points)
            )
            for name, curve in read.values.items()
        }
        return cls(run, curves, tuple(read.refused))


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
class WatchEvent(Record):
    """What a step of `watch` found or changed."""

    run: str
    attempt: int
    action: str
    """`goes on`, `restarted`, `waits`, `busy` or `ended`."""
    detail: str
    """The state of a run that goes on, its outcome, or why it waits."""


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
