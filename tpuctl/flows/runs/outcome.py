"""Settles how a run ended: gathers what its workers and machine say, and writes its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import msgspec

from tpuctl import clock, runs
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.flows.runs import restarts
from tpuctl.flows.runs.checkpoints import last_committed
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.decision import Ending
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.evidence.words import HostState, HostWord, WorkerWord
from tpuctl.flows.runs.stored_attempt import StoredAttempt, find_record
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import NodeState
from tpuctl.runs import Tpu, Verdict
from tpuctl.worker.records import (
    FINISHED,
    PREPARING,
    QUEUED,
    READY,
    RUNNING,
    UNKNOWN,
    StopRequest,
    WorkerStatus,
    check_stop,
)

Statuses = Sequence[WorkerStatus | None]
"""One per worker that runs the script; None for a worker that has written none yet."""

UNREACHABLE_AFTER = 60.0
"""Seconds of silence after which a run without an end is shown as unreachable."""
STARTING, UNREACHABLE = "starting", "unreachable"
"""States of a worker that has written no status yet, and of a run that nobody can say anything of."""
STATES = (STARTING, QUEUED, PREPARING, READY, RUNNING, FINISHED)
NOT_STARTED = "not started"
"""State of a run without an attempt."""
LABELS = (
    NOT_STARTED, *STATES, UNREACHABLE, UNKNOWN,
    runs.SUCCEEDED, runs.FAILED, runs.PREEMPTED, runs.MAINTENANCE, runs.STOPPED, runs.LOST,
)  # fmt: skip
"""Every state of a run that is shown."""


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
        """The evidence of its end, why nobody knows, or what it waits for; empty for a run that goes on."""
        if self.error:
            return self.error.message
        if self.verdict:
            return self.verdict.evidence
        return self.unanswered or self.doubt or (f"{self.ahead} ahead" if self.ahead else "")

    @property
    def label(self) -> str:
        """The verdict's outcome, else the state of the slowest worker; one that is not known here wins."""
        if self.error:
            return UNKNOWN
        if self.verdict:
            return self.verdict.outcome
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


def settle(run: StoredRun, witnesses: Witnesses) -> RunState:
    """Return the run's state, after writing its verdict when it can be decided now.

    Of several readers at once the best evidence is written, and all return it; docs/runs.md has the rules.
    Raises NotFoundError for a run without an attempt.
    """
    try:
        verdict = run.verdict()
        if verdict and run.is_closed:
            return RunState(verdict)
        attempt = run.last_attempt()
        words = attempt.words()
        return _settle_open(run, attempt, words, witnesses, verdict)
    except BadObjectError as error:
        return RunState(None, error=error)


def _settle_open(
    run: StoredRun,
    attempt: StoredAttempt,
    words: Sequence[WorkerWord],
    witnesses: Witnesses,
    verdict: Verdict | None,
) -> RunState:
    """Decide, asking no more than is needed: statuses, then the provider, then hosts."""
    node = None
    if decision.needs_node(words):
        node = witnesses.node(run.bucket, attempt.record.tpu.id)
        words = attempt.words()  # a last word may have come while the machine was ending
    ending = decision.decide(words, node)
    asked = decision.to_be_asked(words, node) if node and not ending else []
    if asked:
        words = _with_hosts(run, attempt, witnesses, asked)
        ending = decision.decide(words, node)
    if verdict and run.is_refuted(verdict, attempt, words):
        verdict = None
    if ending:
        ended = _verdict(run, attempt, _as_asked(run, ending), words)
        verdict = run.end(ended, is_refuted=lambda other: run.is_refuted(other, attempt, words))
    statuses = [word.status for word in words]
    if verdict:
        return RunState(verdict, statuses)
    unanswered = node.detail if node and node.state is NodeState.UNKNOWN else ""
    tpu = attempt.record.tpu
    return RunState(None, statuses, doubt=_doubt(words), unanswered=unanswered, node=tpu, last=attempt.number)


def _with_hosts(
    run: StoredRun, attempt: StoredAttempt, witnesses: Witnesses, asked: Sequence[int]
) -> Sequence[WorkerWord]:
    """Return what workers wrote and their hosts say: the statuses are read after the hosts were asked.

    A last word that is only on a host's disk counts as if it were in the bucket.
    """
    answers = witnesses.hosts(run.name, attempt.record, asked)
    words = []
    for word in attempt.words():
        host = answers.get(word.worker)
        last = host.last if host else None
        if host and last and not word.is_over and (last.is_finished or _has_only_to_say_so(host)):
            word = replace(word, status=replace(last, state=FINISHED))
        words.append(replace(word, host=host))
    return words


def _has_only_to_say_so(host: HostWord) -> bool:
    """Whether the script had ended by itself when its host went down before the bucket heard of it."""
    return host.state is HostState.GONE and host.last is not None and host.last.exit_code is not None


def _as_asked(run: StoredRun, ending: Ending) -> Ending:
    """Return that somebody has stopped a run whose machine ended while it was to stop: it may have saved."""
    if ending.outcome not in (runs.PREEMPTED, runs.MAINTENANCE):
        return ending
    try:
        check = partial(check_stop, run=run.name)
        request = find_record(run.bucket, run.paths.stop, StopRequest, check)
    except BadObjectError:
        return ending  # workers take it for none, either
    if request is None:
        return ending
    evidence = f"stopped by {request.by}; {ending.evidence}"
    return ending._replace(outcome=runs.STOPPED, evidence=evidence, stopped_by=request.by)


def _verdict(run: StoredRun, attempt: StoredAttempt, ending: Ending, words: Sequence[WorkerWord]) -> Verdict:
    now = run.bucket.now()
    last = now - timedelta(seconds=min(word.age for word in words))
    first = decision.first_failure(words) if ending.outcome == runs.FAILED else None
    failed = first.status if first else None
    lost = ending.silent[:1] if ending.outcome == runs.LOST else ()
    verdict = Verdict(
        run.name,
        ending.outcome,
        attempt.number,
        clock.iso(now),
        ending.evidence,
        ending.exit_code,
        ending.basis,
        ending.silent,
        ending.stopped_by,
        clock.iso(last),
        attempt.record.tpu,
        failed.cause if failed else "",
        failed.tail if failed else "",
        failed.worker if failed else next(iter(lost), None),
        started=attempt.started,
    )
    return with_restart(run, verdict)


def with_restart(run: StoredRun, verdict: Verdict) -> Verdict:
    """Return the verdict of an attempt with whether another one follows, and, where it does not, why."""
    if not run.restarts or verdict.outcome not in (runs.FAILED, *restarts.LOSSES):
        return verdict
    checkpoint = last_committed(run.bucket, run.bucket.objects(run.paths.checkpoints))
    verdict = msgspec.structs.replace(verdict, checkpoint=checkpoint)
    policy, earlier = run.record.restarts, run.earlier_verdicts(verdict.attempt)
    answer = restarts.decide(policy, [*earlier, verdict])
    by = _who_stops(run) if answer.restarts else ""
    if by:
        evidence = f"stopped by {by} ({verdict.outcome}: {verdict.evidence})"
        return msgspec.structs.replace(
            verdict, outcome=runs.STOPPED, evidence=evidence, stopped_by=by, exit_code=None
        )
    reason = f"; not restarted: {answer.reason}" if answer.reason else ""
    return msgspec.structs.replace(verdict, restarts=answer.restarts, evidence=f"{verdict.evidence}{reason}")


def _who_stops(run: StoredRun) -> str:
    """Return who asked to stop the run; empty where nobody did."""
    try:
        request = run.stop_request()
    except BadObjectError:
        return ""  # it stops nothing
    return request.by if request else ""


def _doubt(words: Sequence[WorkerWord]) -> str:
    """Return why it is not known whether the silent ones go on; empty if none is silent, or a host knows."""
    silent = [word for word in words if word.silence > UNREACHABLE_AFTER and not word.lives]
    if not silent:
        return ""
    word = max(silent, key=lambda word: word.silence)
    answer = f": {word.host.detail}" if word.host and word.host.state is HostState.NO_ANSWER else ""
    return f"worker {word.worker} has been silent for {word.silence:.0f} s{answer}"
