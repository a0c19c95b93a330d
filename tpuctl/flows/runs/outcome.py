"""How a run ended: decided from what the workers wrote, or from the machine when they fell silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tpuctl import clock, runs
from tpuctl.bucket_layout import RunPaths
from tpuctl.errors import (
    ConflictError,
    JobFailedError,
    NotFoundError,
    PreemptedError,
    StateError,
    TpuctlError,
)
from tpuctl.nodes import GONE
from tpuctl.runs import Attempt, Tpu, Verdict, WorkerStatus

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket
    from tpuctl.cloud.tpu import TpuApi

HUSH = 30.0
"""Seconds without a heartbeat (they come every 10) after which the machine is asked if it is still there."""

SILENCE = 120.0
"""Seconds without a heartbeat after which a worker is lost though its machine is there."""

SETTLING = 30.0
"""Seconds after a worker was told to stop until a node that is READY still was not preempted or deleted."""


def latest_run(bucket: Bucket) -> str:
    """Return the run that was submitted last; raises NotFoundError when there is none."""
    found = every_run(bucket)
    if not found:
        raise NotFoundError("There is no run yet.", hint="Submit one: tpuctl submit jobs/digits.py")
    return found[-1]


def every_run(bucket: Bucket) -> list[str]:
    """Return all runs, oldest first."""
    records = bucket.objects("runs/", glob="runs/*/run.json")
    return [one.name.split("/")[1] for one in sorted(records, key=lambda one: one.generation)]


def last_attempt(bucket: Bucket, run: str) -> Attempt:
    """Return the newest attempt of a run; raises NotFoundError when there is no such run."""
    paths = RunPaths(run)
    numbers = [int(one) for one in bucket.folders(f"{paths.folder}attempts/") if one.isdigit()]
    if not numbers:
        raise NotFoundError(f"There is no run '{run}'.", hint="'tpuctl runs' lists them.", run=run)
    name = paths.attempt(max(numbers))
    return runs.decode(bucket.read(name), Attempt, name)


def statuses(bucket: Bucket, run: str, attempt: Attempt) -> list[WorkerStatus | None]:
    """Return what each worker of an attempt wrote last; None for one that has not written yet."""
    found = []
    for worker in attempt.workers:
        name = RunPaths(run).status(attempt.attempt, worker)
        data = bucket.find(name)
        found.append(runs.decode(data, WorkerStatus, name) if data else None)
    return found


def verdict(bucket: Bucket, run: str) -> Verdict | None:
    """Return the verdict that stands in the bucket, or None."""
    name = RunPaths(run).verdict
    data = bucket.find(name)
    return runs.decode(data, Verdict, name) if data else None


def settle(bucket: Bucket, tpu: TpuApi, run: str, at: datetime) -> Verdict | None:
    """Return the run's verdict, writing it when it can be decided now; None while the run goes on.

    Whoever looks first decides; of two at once one is written and both return it.
    """
    standing = verdict(bucket, run)
    if standing:
        return standing
    attempt = last_attempt(bucket, run)
    decided = decide(run, attempt, statuses(bucket, run, attempt), at, lambda: _machine(tpu, attempt.tpu))
    return write(bucket, decided) if decided else None


def write(bucket: Bucket, decided: Verdict) -> Verdict:
    """Write a verdict unless one stands, and return the one that stands then."""
    try:
        bucket.create(RunPaths(decided.run).verdict, runs.encode(decided))
    except ConflictError:
        return verdict(bucket, decided.run) or decided
    return decided


def decide(
    run: str,
    attempt: Attempt,
    found: Sequence[WorkerStatus | None],
    at: datetime,
    machine: Callable[[], str],
) -> Verdict | None:
    """Return the verdict that the workers' words and the machine's state amount to; None for not yet.

    `machine` asks for the state of the attempt's node: "" when it is not there any more.
    """

    def ended(outcome: str, evidence: str, exit_code: int | None = None) -> Verdict:
        return Verdict(run, outcome, attempt.attempt, clock.iso(at), evidence, exit_code)

    told_to_stop = [one for one in found if one and one.done and one.stopped]
    over = all(one and one.done for one in found)
    bad = [one for one in found if one and one.done and one.exit_code != 0 and not one.stopped]
    if bad and not told_to_stop:
        # The others would wait for it for ever, and bill.
        more = "" if over else "; the other workers may go on until 'tpuctl down'"
        return ended(runs.FAILED, _blame(bad[0]) + more, bad[0].exit_code)
    if over and not told_to_stop:
        return ended(runs.SUCCEEDED, "every worker's script ended with exit code 0")
    silence = _silence(attempt, found, at)
    if not told_to_stop and silence <= HUSH:
        return None
    state = machine()
    if state in GONE:
        return ended(runs.PREEMPTED, f"the node is {state}")
    if state in ("", "DELETING"):
        return ended(runs.STOPPED, "the node was deleted")
    if told_to_stop and over and _settled(told_to_stop[0], at):
        return ended(runs.STOPPED, f"worker {told_to_stop[0].worker} was ended by {told_to_stop[0].stopped}")
    if told_to_stop or silence <= SILENCE:
        return None
    return ended(runs.LOST, f"no heartbeat for {SILENCE:.0f} s while the node was {state}")


def error_of(found: Verdict) -> TpuctlError | None:
    """Return the error that a verdict means for a command that waited for it; None for success."""
    hint = f"See it all with 'tpuctl pull {found.run}'."
    if found.outcome == runs.SUCCEEDED:
        return None
    if found.outcome == runs.PREEMPTED:
        return PreemptedError(f"Run '{found.run}' was preempted: {found.evidence}.", hint=hint)
    if found.outcome == runs.FAILED:
        return JobFailedError(
            f"Run '{found.run}' failed: {found.evidence}.", hint=hint, job_exit_code=found.exit_code
        )
    return StateError(f"Run '{found.run}' was {found.outcome}: {found.evidence}.", hint=hint)


def _machine(tpu: TpuApi, machine: Tpu) -> str:
    try:
        node = tpu.node(machine.zone, machine.name)
    except NotFoundError:
        return ""
    return node.state if node.uid == machine.uid else ""


def _settled(status: WorkerStatus, at: datetime) -> bool:
    """Tell whether the node would show by now that it was being taken away: the worker's word comes first."""
    return not status.finished or (at - clock.parse(status.finished)).total_seconds() > SETTLING


def _silence(attempt: Attempt, found: Sequence[WorkerStatus | None], at: datetime) -> float:
    """Return for how many seconds a worker that has not finished has said nothing, of several the longest."""
    last = [one.heartbeat if one else attempt.created for one in found if not (one and one.done)]
    return max(((at - clock.parse(one)).total_seconds() for one in last), default=0.0)


def _blame(status: WorkerStatus) -> str:
    if status.error:
        return f"worker {status.worker}: {status.error}"
    if status.signal:
        return f"worker {status.worker}'s script was ended by {status.signal}"
    return f"worker {status.worker}'s script ended with exit code {status.exit_code}"
