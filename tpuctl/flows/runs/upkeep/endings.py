"""Says whether a run has ended for sure, or why nobody can say that; docs/runs.md has the evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError, StateError, joined_hints
from tpuctl.flows.runs.evidence.decision import ENDED
from tpuctl.flows.runs.evidence.signs import RecordMissingError, sign_of
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.evidence.words import HostState, WorkerWord
from tpuctl.flows.runs.lookup import outcomes_in
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.state import ABANDONED, ABANDONED_AFTER, RunState
from tpuctl.flows.runs.stored_attempt import age_of
from tpuctl.flows.runs.stored_run import CLOSE_AFTER, StoredRun
from tpuctl.runs import BY_MACHINE, RANKS, Verdict
from tpuctl.text.worker_numbers import named

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Object

REST = "rest"
"""State of objects without a record of a run."""


def outcome_in(run: StoredRun, objects: Iterable[Object]) -> str:
    """Return how a run has ended for sure, as the list of its objects tells; empty where they must be read.

    It tells once the verdict is final, and nothing of an attempt was written for two hours.
    """
    listed, now = list(objects), run.bucket.now()
    written = [item for item in listed if item.name.startswith(run.paths.attempts)]
    if any(age_of(item, now) <= CLOSE_AFTER for item in written):
        return ""
    verdicts = [item for item in listed if item.name == run.paths.verdict]
    return outcomes_in(verdicts, now).get(run.name, "")


class StillNeededError(StateError):
    """A run goes on, is to be started again, or nobody knows whether it does."""


def ended_state(run: StoredRun, witnesses: Witnesses, *, writes: bool = True) -> RunState | None:
    """Return how a run has ended; None for one that was never started, or of which there is only a rest.

    With `writes` a verdict that can be decided now is written. Raises StillNeededError or RecordMissingError.
    """
    try:
        state = settle(run, witnesses) if writes else RunState(run.verdict())
    except NotFoundError:
        _check_abandoned(run)
        return None
    if state.verdict is None and not state.error and not run.attempt_numbers():
        sign = state.sign or sign_of(run.bucket, run.name)
        if sign:
            raise RecordMissingError(sign)
        _check_abandoned(run)
        return None
    if state.error:
        raise _refusal(run, f"cannot be read, so nobody knows whether it has ended: {state.error.message}")
    if state.verdict is None:
        doubt = f" ({state.label}{f': {state.reason}' if state.reason else ''})" if writes else ""
        raise _refusal(run, f"has not ended{doubt}.", f"Stop it first: tpuctl cancel {run.name}")
    _check_verdict(run, state.verdict)
    _check_workers(run, state.verdict, witnesses)
    return state


def unstarted_state(run: StoredRun) -> str:
    """Return the state of a run without an attempt."""
    return ABANDONED if run.bucket.stat(run.paths.record) else REST


def _check_abandoned(run: StoredRun) -> None:
    item = run.bucket.stat(run.paths.record)
    if item and age_of(item, run.bucket.now()) <= ABANDONED_AFTER:
        reason = "was submitted just now: its start may be on its way."
        raise _refusal(run, reason, f"End it first: tpuctl cancel {run.name}")


def _check_verdict(run: StoredRun, verdict: Verdict) -> None:
    """Raise StillNeededError for a verdict that another attempt follows, or that is a guess."""
    if verdict.restarts:
        reason = f"is to be started again ({verdict.outcome})."
        raise _refusal(run, reason, f"End it first: tpuctl cancel {run.name}")
    if verdict.rank < RANKS[BY_MACHINE]:
        node = verdict.tpu.name if verdict.tpu else "its TPU"
        reason = f"may go on: {verdict.evidence}. Silence does not say that it has ended."
        hint = joined_hints(f"See: tpuctl why {node}", f"End whatever runs there: tpuctl down {node}")
        raise _refusal(run, reason, hint)
    pending = leases.current(run, verdict.attempt + 1)
    if pending:
        raise _refusal(run, f"is being started again by {pending.holder}.", f"tpuctl wait {run.name}")


def _check_workers(run: StoredRun, verdict: Verdict, witnesses: Witnesses) -> None:
    """Raise StillNeededError where a worker may be at work: others end a while after the first one failed."""
    attempt = run.attempt(verdict.attempt)
    try:
        words = attempt.words()
    except NotFoundError:
        return  # it was stopped before it had an attempt
    except BadObjectError as error:
        if age_of(run.bucket.stat(run.paths.verdict), run.bucket.now()) > CLOSE_AFTER:
            return
        raise _refusal(run, f"cannot be read: {error.message}") from error
    unsure = [word for word in words if _may_work(word, is_closed=run.is_closed)]
    if not unsure or witnesses.node(run.bucket, attempt.record.tpu.id).state in ENDED:
        return
    hosts = witnesses.hosts(run.name, attempt.record, [word.worker for word in unsure])
    free = {worker for worker, host in hosts.items() if host.state in (HostState.GONE, HostState.ABSENT)}
    busy = [word.worker for word in unsure if word.worker not in free]
    if busy:
        reason = f"may go on: {named(busy)} did not say that the script ended."
        raise _refusal(run, reason, f"See: tpuctl why {attempt.record.tpu.name}")


def _may_work(word: WorkerWord, *, is_closed: bool) -> bool:
    """Whether a worker has not ended; a final verdict counts once nothing more was heard for two hours."""
    return not word.is_over and not (is_closed and word.age > CLOSE_AFTER)


def _refusal(run: StoredRun, reason: str, hint: str = "") -> StillNeededError:
    return StillNeededError(f"Run '{run.name}' {reason}", hint=hint, run=run.name)
