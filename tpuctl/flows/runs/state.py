"""Defines what a reader knows of a run, and decides whether one that has ended is started again.

- Says how many steps an attempt has lost that the next does again, by their logs and the checkpoint.

  A log tells steps as `step 120`, `Step: 120/1000` or `global_step=120`; a checkpoint's name ends in its
  step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tpuctl import clock, durations, runs
from tpuctl.bucket_objects import LAST_ATTEMPT, BadObjectError
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.evidence.decision import WorkerWord
from tpuctl.flows.runs.evidence.witnesses import LiveSign
from tpuctl.flows.runs.stored_attempt import LogChunk, StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, PREPARING, QUEUED, READY, RUNNING, UNKNOWN, WorkerStatus
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_SILENCE, Tpu, Verdict

LOSSES = (runs.PREEMPTED, runs.MAINTENANCE, runs.LOST)
"""Outcomes that are no failure of the script."""
SOON = 120.0
"""Seconds within which an attempt that is lost was lost at once."""
MOST_LOST_AT_ONCE = 3
"""Attempts in a row that may be lost at once: the second gets another machine."""


class Decision(NamedTuple):
    """Whether another attempt follows."""

    restarts: bool
    reason: str = ""
    """Why not; empty where nobody asked for restarts."""


NO_RESTART = Decision(restarts=False)


def decide(policy: Restarts, verdicts: Sequence[Verdict]) -> Decision:
    """Return whether another attempt follows those that ended with these verdicts, the last one last."""
    last, earlier = verdicts[-1], verdicts[:-1]
    decision = NO_RESTART
    if last.outcome in LOSSES:
        decision = _after_loss(policy, last, earlier)
    elif last.outcome == runs.FAILED:
        decision = _after_failure(policy, last, earlier)
    if decision.restarts and last.attempt >= LAST_ATTEMPT:  # of whoever could create its record
        return Decision(restarts=False, reason=f"attempt {last.attempt} is the last that a run can have")
    return decision


def _after_loss(policy: Restarts, last: Verdict, earlier: Sequence[Verdict]) -> Decision:
    if policy.after_loss == 0:
        return NO_RESTART
    lost = sum(verdict.outcome in LOSSES for verdict in earlier)
    if policy.after_loss is not None and lost >= policy.after_loss:
        return Decision(restarts=False, reason=f"it has used up {_times(policy.after_loss)}")
    latest = (*earlier, last)[-MOST_LOST_AT_ONCE:]
    if len(latest) == MOST_LOST_AT_ONCE and all(map(was_lost_at_once, latest)):
        reason = f"{MOST_LOST_AT_ONCE} attempts in a row were lost within {SOON:.0f} s"
        return Decision(restarts=False, reason=reason)
    return Decision(restarts=True)


def _after_failure(policy: Restarts, last: Verdict, earlier: Sequence[Verdict]) -> Decision:
    if not policy.after_failure:
        return NO_RESTART
    if earlier and _fails_alike(earlier[-1], last):
        place = f" after checkpoint {last.checkpoint}" if last.checkpoint else ""
        return Decision(restarts=False, reason=f"it failed the same way twice in a row{place}")
    failed = sum(verdict.outcome == runs.FAILED for verdict in earlier)
    if failed >= policy.after_failure:
        return Decision(restarts=False, reason=f"it has used up {_times(policy.after_failure)} on failure")
    return Decision(restarts=True)


def needs_other_machine(verdicts: Sequence[Verdict]) -> bool:
    """Return whether the machine of the last attempt is to be replaced, although it may still be READY.

    Its host is silent, or has lost the same worker at once, twice.
    """
    last = verdicts[-1]
    if last.outcome != runs.LOST:
        return False
    return last.basis == BY_SILENCE or (len(verdicts) > 1 and _is_bad_host(verdicts[-2], last))


def _is_bad_host(before: Verdict, last: Verdict) -> bool:
    is_same = before.tpu is not None and last.tpu is not None and before.tpu.uid == last.tpu.uid
    return is_same and before.worker == last.worker and was_lost_at_once(before) and was_lost_at_once(last)


def was_lost_at_once(verdict: Verdict) -> bool:
    """Return whether an attempt was lost before it can have done much."""
    if verdict.outcome != runs.LOST or not verdict.started:
        return False
    ended = clock.parse(verdict.ended or verdict.decided)
    return (ended - clock.parse(verdict.started)).total_seconds() <= SOON


def _fails_alike(before: Verdict, last: Verdict) -> bool:
    """Whether two failures are the same: a later checkpoint, or another last line, is progress."""
    return before.outcome == runs.FAILED and _way(before) == _way(last)


def _way(verdict: Verdict) -> tuple[object, ...]:
    detail = verdict.last_line or verdict.evidence
    return verdict.worker, verdict.exit_code, verdict.cause, detail, verdict.checkpoint


def _times(count: int) -> str:
    return f"{count} restart{'s' * (count > 1)}"


Statuses = Sequence[WorkerStatus | None]
"""One per worker that runs the script; None for a worker that has written none yet."""

STARTING, UNREACHABLE = "starting", "unreachable"
"""States of a worker that has written no status yet, and of a run that nobody can say anything of."""
STATES = (STARTING, QUEUED, PREPARING, READY, RUNNING, FINISHED)
NOT_STARTED, ABANDONED = "not started", "abandoned"
"""States of a run without an attempt: its submission may be on its way, or was killed."""
RECORD_MISSING = "record missing"
"""State of a run that works, though its record or that of its attempt is gone."""
ABANDONED_AFTER = 600.0
"""Seconds after which it was: submissions that find one TPU free at once wait for each other so long."""
QUIET_AFTER = 600.0
"""Seconds without output after which a running script is reported as silent."""
LABELS = (
    NOT_STARTED, ABANDONED, *STATES, UNREACHABLE, UNKNOWN, RECORD_MISSING,
    runs.SUCCEEDED, runs.FAILED, runs.PREEMPTED, runs.MAINTENANCE, runs.STOPPED, runs.LOST,
)  # fmt: skip
"""Every state of a run that is shown."""


def line_left(statuses: Statuses) -> str | None:
    """Return when the last worker left the line of its node, by its host's clock: the others wait for it.

    Empty where one has not; None where all have, or may have, and do not say when.
    """
    written = [status for status in statuses if status]
    if not written or not all(map(_may_have_left_the_line, written)):
        return ""
    return max((status.started for status in written if clock.is_time(status.started)), default=None)


def _may_have_left_the_line(status: WorkerStatus) -> bool:
    if status.state in (QUEUED, RUNNING, UNKNOWN):
        return status.state != QUEUED
    return clock.is_time(status.started) or status.has_run or status.exit_code is not None


def quiet_of(words: Iterable[WorkerWord]) -> float | None:
    """Return for how long no script has printed anything: the one that printed last counts."""
    return min((word.quiet for word in words if word.quiet is not None), default=None)


def unstarted_label(seconds: float) -> str:
    """Return the state of a run that was recorded so long ago, and has no attempt."""
    return ABANDONED if seconds > ABANDONED_AFTER else NOT_STARTED


def unstarted_reason(run: str, seconds: float) -> str:
    """Return what became of it; empty while it may be on its way."""
    if seconds <= ABANDONED_AFTER:
        return ""
    return f"its submission ended before it started anything; the same command with --name {run} starts it"


@dataclass(frozen=True)
class RunState:
    """A run's verdict, or, while it has none, what its workers wrote last."""

    verdict: Verdict | None
    statuses: Statuses = ()
    error: BadObjectError | None = None
    """Why nothing is known: the verdict, or the attempt that would decide it, cannot be read."""
    doubt: str = ""
    """Why it is not known whether the run goes on: nobody who could say so answers. Empty if it is."""
    unanswered: str = ""
    """Why the provider did not say what the node is doing; empty if it did or was not asked."""
    node: Tpu | None = None
    """Where its last attempt is, while it has no verdict."""
    last: int = 0
    """The number of its last attempt, while it has no verdict; 0 where it is not known."""
    recorded: str = ""
    """When that was recorded, by the bucket's clock; empty where it is not known."""
    price: RecordedPrice | None = None
    """What its node cost per hour then; None where it is not known."""
    quiet: float | None = None
    """Seconds for which no worker's script has printed anything; None where none runs, or nobody knows."""
    sign: LiveSign | None = None
    """What works of it although its record or that of its attempt is gone; None for any other run."""

    @property
    def attempt(self) -> int:
        """The number of the attempt that ended or goes on; 0 where it is not known."""
        return self.verdict.attempt if self.verdict else self.last

    @property
    def tpu(self) -> Tpu | None:
        """The node of the attempt that ended or goes on; None where it is not known."""
        return self.verdict.tpu if self.verdict else self.node

    @property
    def reason(self) -> str:
        """The evidence of its end, why nobody knows, what it waits for, or what is odd about its scripts.

        Empty for a run that works on its chips and prints.
        """
        if self.error:
            return self.error.message
        if self.verdict:
            return self.verdict.evidence
        if self.sign:
            return self.sign.reason
        ahead = f"{self.ahead} ahead" if self.ahead else ""
        return self.unanswered or self.doubt or ahead or self.no_chip or self.no_output

    @property
    def no_output(self) -> str:
        """For how long its scripts have printed nothing; empty for a short time."""
        quiet = self.quiet or 0.0
        return f"no output for {durations.roughly(quiet)}" if quiet >= QUIET_AFTER else ""

    @property
    def no_chip(self) -> str:
        """Which of its scripts have held no TPU chip since they started, minutes ago; empty for none."""
        running = [status for status in self.statuses if status and status.state == RUNNING]
        without = sum(status.has_no_chip for status in running)
        if not without:
            return ""
        some = f"{without} of {len(running)} workers " if without < len(running) else ""
        return f"{some}{'hold' if some and without > 1 else 'holds'} no TPU chip: running on the CPU?"

    @property
    def label(self) -> str:
        """The verdict's outcome, else the state of the slowest worker; one that is not known here wins."""
        if self.error:
            return UNKNOWN
        if self.verdict:
            return self.verdict.outcome
        if self.sign:
            return RECORD_MISSING
        if self.unanswered:
            return UNKNOWN
        if self.doubt:
            return UNREACHABLE
        states = [status.state if status else STARTING for status in self.statuses]
        return min(states, key=lambda state: STATES.index(state) if state in STATES else -1)

    @property
    def ahead(self) -> int:
        """The number of runs that it waits for in the line of its TPU; 0 for one that does not wait."""
        return max((status.ahead for status in self.statuses if status and status.state == QUEUED), default=0)


STEP = re.compile(rb"(?<![a-z])step\b\W{0,3}(\d{1,15})", re.IGNORECASE)
NUMBER = re.compile(r"\d{1,15}\Z")
MOST_PIECES = 3
"""Pieces of a log at its begin or end in which steps are looked for."""
MOST_BYTES = 64 << 10
"""Bytes of each that are read."""


def steps_lost(run: StoredRun, verdict: Verdict) -> int | None:
    """Return how many steps the attempt of a verdict has lost to the next; None where that is not known.

    It is known where both tell their steps, and the next goes on right behind the checkpoint's number: that
    of a script which counts its saves is no step.
    """
    try:
        before = _steps(run.attempt(verdict.attempt), is_end=True)
        after = _steps(run.attempt(verdict.attempt + 1), is_end=False)
    except TpuctlError:
        return None
    if not before or not after:
        return None
    last, first = max(before), after[0]
    return _lost(last, first, _resumed_at(verdict.checkpoint), _interval(before, after))


def total_lost(run: StoredRun, before: int) -> int | None:
    """Return the steps that all attempts before the `before`-th have lost; None where one is not known."""
    try:
        lost = [steps_lost(run, verdict) for verdict in run.earlier_verdicts(before)]
    except TpuctlError:  # a verdict that cannot be read
        return None
    known = [steps for steps in lost if steps is not None]
    return sum(known) if lost and len(known) == len(lost) else None


def first_step(run: StoredRun, number: int) -> str:
    """Return when the log of an attempt told its first step, by the bucket's clock; empty before that."""
    attempt = run.attempt(number)
    worker = attempt.record.workers[0]
    for chunk in [chunk for chunk in attempt.ordered_chunks() if chunk.worker == worker][:MOST_PIECES]:
        if STEP.search(_read(attempt, chunk, is_end=False)):
            return chunk.item.updated
    return ""


def _lost(last: int, first: int, resumed: int | None, interval: int) -> int | None:
    if resumed is None or not resumed <= first <= resumed + interval:
        return None
    return max(0, last - resumed)


def _resumed_at(checkpoint: str) -> int | None:
    """Return the step of a checkpoint's name; 0 for an attempt that begins anew."""
    match = NUMBER.search(checkpoint)
    if match:
        return int(match[0])
    return None if checkpoint else 0


def _interval(before: list[int], after: list[int]) -> int:
    """Return the longest distance between two steps that a log tells in a row; 1 where it is not known."""
    distances = [second - first for steps in (before, after) for first, second in pairwise(steps)]
    return max((distance for distance in distances if distance > 0), default=1)


def _steps(attempt: StoredAttempt, *, is_end: bool) -> list[int]:
    """Return the steps that the first worker tells at the begin or the end of its log, in order."""
    worker = attempt.record.workers[0]
    chunks = [chunk for chunk in attempt.ordered_chunks() if chunk.worker == worker]
    chosen = chunks[-MOST_PIECES:] if is_end else chunks[:MOST_PIECES]
    text = b"".join(_read(attempt, chunk, is_end=is_end) for chunk in chosen)
    return [int(step) for step in STEP.findall(text)]


def _read(attempt: StoredAttempt, chunk: LogChunk, *, is_end: bool) -> bytes:
    size = chunk.item.size
    start = max(0, size - MOST_BYTES) if is_end else 0
    return attempt.read_log(chunk, start, min(size, start + MOST_BYTES))
