"""Decides whether a run that has ended is started again: by its policy, and by how its attempts ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tpuctl import clock, runs
from tpuctl.bucket_objects import LAST_ATTEMPT
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_SILENCE, Verdict

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
