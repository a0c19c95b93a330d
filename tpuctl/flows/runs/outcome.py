"""Settles how a run ended: gathers what its workers and machine say, and writes its verdict.

- Says what the end of a run means for who waited for it: an error, its exit code, and the next command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from tpuctl import clock, runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import (
    BucketMissingError,
    ConfigError,
    JobFailedError,
    NotFoundError,
    PreemptedError,
    StateError,
    TpuctlError,
)
from tpuctl.flows.runs import state
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.decision import Ending, HostState, HostWord, NodeWord, WorkerWord
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, Witnesses
from tpuctl.flows.runs.state import RunState, line_left, quiet_of
from tpuctl.flows.runs.stored_attempt import StoredAttempt, find_record
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import (
    CHIPS_HELD,
    CHIPS_LOCKED,
    DISK_FULL,
    FINISHED,
    OUT_OF_MEMORY,
    StopRequest,
    WorkerStatus,
    check_stop,
)
from tpuctl.nodes import NodeState
from tpuctl.runs import BY_MACHINE, Attempt, Verdict


class _Consequence(NamedTuple):
    """What an outcome but success means for who waited."""

    error: type[TpuctlError]
    words: str
    advice: str = ""
    """Fits before a colon and a command."""
    command: str = ""
    """For a run whose node is known; empty for the end of the log."""


LOG_END = "See the end of its log"
CONSEQUENCES = {
    runs.FAILED: _Consequence(JobFailedError, "failed"),
    runs.PREEMPTED: _Consequence(
        PreemptedError,
        "was preempted",
        "Make a TPU again, then submit it again",
        "tpuctl up {type}{spot} --zone {zone}",
    ),
    runs.MAINTENANCE: _Consequence(
        StateError,
        "was ended by maintenance",
        "Submit it again once the node is READY",
        "tpuctl wait {node}",
    ),
    runs.STOPPED: _Consequence(
        StateError, "was stopped", "See what happened to its TPU", "tpuctl why {node}"
    ),
    runs.LOST: _Consequence(StateError, "was lost", "See what happened to its TPU", "tpuctl why {node}"),
}
CAUSES = {
    runs.UNSTARTED: _Consequence(
        JobFailedError, "was not started", "The same command with --name {run} starts it; what is known",
        "tpuctl describe {run}",
    ),
    OUT_OF_MEMORY: _Consequence(
        JobFailedError, "failed", "Use a smaller batch, or a larger slice; its last lines"
    ),
    DISK_FULL: _Consequence(
        JobFailedError, "failed", "Delete files on its hosts, or write to gs://",
        "tpuctl exec {node} -- df -h",
    ),
    CHIPS_HELD: _Consequence(
        JobFailedError, "failed", "End the process that holds the chips; the log names it",
        "tpuctl logs {run} --grep 'is held by'",
    ),
    CHIPS_LOCKED: _Consequence(
        JobFailedError, "failed", "If nobody holds the chips, delete the lock file that another user left",
        "tpuctl exec {node} -- sudo rm -f /tmp/libtpu_lockfile",
    ),
}  # fmt: skip
"""By the cause of a failure."""
MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (No module named '[\w.]{1,200}')")
"""The last line of a script that imports what its host does not have."""


AGAIN = "Start it again from its last checkpoint, on another machine where that is needed"


def _consequence(verdict: Verdict) -> _Consequence:
    if verdict.restarts:
        return CONSEQUENCES[verdict.outcome]._replace(advice=AGAIN, command="tpuctl watch {run}")
    if verdict.outcome == runs.FAILED and verdict.cause in CAUSES:
        return CAUSES[verdict.cause]
    if _missing(verdict):
        return CONSEQUENCES[runs.FAILED]._replace(
            advice="Add the package that has it to dependencies in the script's header, or, for a file of "
            "yours, ship it with --include; its last lines"
        )
    other = _Consequence(StateError, f"was {verdict.outcome}")  # of a later version
    return CONSEQUENCES.get(verdict.outcome, other)


def error_of(verdict: Verdict) -> TpuctlError | None:
    """Return the error that a verdict means for a command that waited for the run; None for success."""
    if verdict.outcome == runs.SUCCEEDED:
        return None
    consequence = _consequence(verdict)
    hint = _hint(verdict)
    if verdict.stopped_by:
        message = f"Run '{verdict.run}' was {verdict.evidence}."
        return consequence.error(message, hint=hint, stopped_by=verdict.stopped_by)
    facts = {"job_exit_code": verdict.exit_code} if verdict.outcome == runs.FAILED else {}
    missing = _missing(verdict)
    evidence = verdict.evidence.removesuffix(".") + (f": {missing}" if missing else "")
    message = f"Run '{verdict.run}' {consequence.words}: {evidence}."
    return consequence.error(message, hint=hint, **facts)


def success_of(verdict: Verdict) -> str:
    """Return that a run has succeeded, as a sentence, with what its evidence says besides."""
    besides = verdict.evidence.partition("; ")[2].removesuffix(".")
    return f"Run '{verdict.run}' {verdict.outcome}{f'; {besides}' if besides else ''}."


def _missing(verdict: Verdict) -> str:
    """Return Python's words for a module that the failed script could not import; "" for any other end."""
    match = MISSING.match(verdict.last_line) if verdict.outcome == runs.FAILED else None
    return match.group(1) if match else ""


def _hint(verdict: Verdict) -> str:
    command, consequence = next_command(verdict), _consequence(verdict)
    is_other = consequence.command and command == _end_of_log(verdict)
    if verdict.stopped_by and verdict.tpu is None:
        return f"See what was asked for: {command}"
    advice = "" if is_other else consequence.advice
    return f"{(advice or LOG_END).format(run=verdict.run)}: {command}"


def next_command(verdict: Verdict) -> str:
    """Return the command that a user needs next: the results of a success, else what shows the reason."""
    if verdict.outcome == runs.SUCCEEDED:
        return f"tpuctl pull {verdict.run}"
    if verdict.stopped_by and verdict.tpu is None:  # before it had an attempt, and so a log
        return f"tpuctl describe {verdict.run}"
    command, tpu = _consequence(verdict).command, verdict.tpu
    if tpu is None or not command or verdict.stopped_by:
        return _end_of_log(verdict)
    spot = (f" --slices {len(tpu.slices)}" if tpu.slices else "") + (" --spot" if tpu.spot else "")
    return command.format(run=verdict.run, node=tpu.name, zone=tpu.zone, type=tpu.accelerator, spot=spot)


def _end_of_log(verdict: Verdict) -> str:
    return f"tpuctl logs {verdict.run} --tail 20"


UNREACHABLE_AFTER = 60.0
"""Seconds of silence after which a run without an end is shown as unreachable."""


def settle(run: StoredRun, witnesses: Witnesses) -> RunState:
    """Return the run's state, after writing its verdict when it can be decided now.

    Of several readers at once the best evidence is written, and all return it; docs/runs.md has the rules.
    A run that works without its record counts as running. Where the bucket was deleted since `run` was read,
    the provider and the hosts say how it is. Raises NotFoundError for a run without an attempt, and for one
    that was removed meanwhile.
    """
    try:
        verdict = run.verdict()
        if verdict and run.is_closed:
            return RunState(verdict)
        try:
            attempt = run.last_attempt()
        except NotFoundError:
            if verdict:  # it was stopped before it had an attempt
                return RunState(verdict)
            raise
        words = attempt.words()
        return _settle_open(run, attempt, words, witnesses, verdict)
    except RecordMissingError as error:
        return RunState(None, error.sign.statuses, last=error.sign.attempt, sign=error.sign)
    except BadObjectError as error:
        return RunState(None, error=error)
    except BucketMissingError as error:
        return _settle_without_bucket(run, witnesses, error)


def _settle_without_bucket(run: StoredRun, witnesses: Witnesses, error: BucketMissingError) -> RunState:
    """Decide by what is remembered of the bucket; nobody starts the run again without its code."""
    attempt = run.last_read
    if attempt is None:
        raise error
    record, words = attempt.record, attempt.last_words()
    node = witnesses.node(run.bucket, record.tpu.id)
    answers = witnesses.hosts(run.name, record, decision.to_be_asked(words, node))
    words = _with_hosts(words, answers)
    ending, statuses = decision.decide(words, node), [word.status for word in words]
    if ending:
        return RunState(_verdict(run, attempt, _with_refusal(ending, words), words), statuses)
    missing = f"the bucket gs://{run.bucket.name} does not exist"
    return RunState(
        None, statuses, doubt="; ".join(filter(None, (missing, _doubt(words)))), node=record.tpu,
        last=attempt.number, recorded=attempt.started, price=record.price,
    )  # fmt: skip


def _settle_open(
    run: StoredRun,
    attempt: StoredAttempt,
    words: Sequence[WorkerWord],
    witnesses: Witnesses,
    verdict: Verdict | None,
) -> RunState:
    """Decide, asking no more than is needed: statuses, then the provider, then hosts."""
    is_heard = any(word.status for word in words)
    node = None
    if decision.needs_node(words):
        node = witnesses.node(run.bucket, attempt.record.tpu.id)
        words = attempt.words()  # a last word may have come while the machine was ending
    ending = decision.decide(words, node)
    asked = decision.to_be_asked(words, node) if node and not ending else []
    if asked:
        answers = witnesses.hosts(run.name, attempt.record, asked)
        words = _with_hosts(attempt.words(), answers)
        ending = decision.decide(words, node)
    if verdict and run.is_refuted(verdict, attempt, words):
        verdict = None
    if ending:
        if not is_heard:
            run.check_present()
        ending = _with_refusal(_as_maintained(run, attempt, ending, words, node, witnesses), words)
        ended = with_restart(run, _verdict(run, attempt, _as_asked(run, ending), words))
        try:
            verdict = run.end(ended, is_refuted=lambda other: run.is_refuted(other, attempt, words))
        except ConfigError:
            verdict = ended  # who may not write into the bucket learns it all the same
    statuses = [word.status for word in words]
    if verdict:
        return RunState(verdict, statuses)
    unanswered = node.detail if node and node.state is NodeState.UNKNOWN else ""
    tpu = attempt.record.tpu
    return RunState(
        None, statuses, doubt=_doubt(words), unanswered=unanswered, node=tpu, last=attempt.number,
        recorded=attempt.started, price=attempt.record.price, quiet=quiet_of(words),
    )  # fmt: skip


def _with_hosts(words: Sequence[WorkerWord], answers: Mapping[int, HostWord]) -> list[WorkerWord]:
    """Return what workers wrote, read after the hosts were asked, and what these answered.

    A last word that is only on a host's disk counts as if it were in the bucket.
    """
    told = []
    for word in words:
        host = answers.get(word.worker)
        last = host.last if host else None
        is_said = host and last and (last.is_finished or last.refusal or _has_only_to_say_so(host))
        if last and is_said and not word.is_over:
            word = replace(word, status=replace(last, state=FINISHED), age=_age_of(word, last))
        told.append(replace(word, host=host))
    return told


def _age_of(word: WorkerWord, last: WorkerStatus) -> float:
    """Return how long ago a worker ended whose words the bucket refuses: later than its last, by its host."""
    if not (last.refusal and last.finished and word.status):
        return word.age
    since = clock.parse(last.finished) - clock.parse(word.status.heartbeat)
    return min(word.age, max(0.0, word.age - since.total_seconds()))


def _has_only_to_say_so(host: HostWord) -> bool:
    """Whether the script had ended by itself when its host went down before the bucket heard of it."""
    return host.state is HostState.GONE and host.last is not None and host.last.exit_code is not None


def _as_maintained(
    run: StoredRun,
    attempt: StoredAttempt,
    ending: Ending,
    words: Sequence[WorkerWord],
    node: NodeWord | None,
    witnesses: Witnesses,
) -> Ending:
    """Return that the provider had maintained the hosts, where these were stopped without notice of it."""
    stopped = decision.stopped_by_host(words)
    is_by_signal = ending.outcome == runs.STOPPED and not ending.stopped_by and bool(stopped)
    if not is_by_signal or node is None or node.state is not NodeState.READY:
        return ending
    age = max(word.age for word in stopped)
    began = witnesses.maintenance(attempt.record.tpu.id, run.bucket.now() - timedelta(seconds=age))
    if not began:
        return ending
    evidence = f"{ending.evidence}: the provider began maintenance of its node at {began}"
    return ending._replace(outcome=runs.MAINTENANCE, evidence=evidence)


def _with_refusal(ending: Ending, words: Sequence[WorkerWord]) -> Ending:
    """Return an end with why a worker's last word, which its host told, is not in the bucket."""
    for word in words:
        if word.status and word.status.refusal:
            subject = f"the last word of worker {word.worker}" if len(words) > 1 else "its last word"
            reason = f"{subject} could not be written: {word.status.refusal.removesuffix('.')}"
            return ending._replace(evidence=f"{ending.evidence}; {reason}")
    return ending


def _as_asked(run: StoredRun, ending: Ending) -> Ending:
    """Return that somebody has stopped a run whose machine ended while it was to stop: it may have saved."""
    if ending.outcome not in state.LOSSES:
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
    return Verdict(
        run=run.name,
        outcome=ending.outcome,
        attempt=attempt.number,
        decided=clock.iso(now),
        evidence=ending.evidence,
        exit_code=ending.exit_code,
        basis=ending.basis,
        silent=ending.silent,
        stopped_by=ending.stopped_by,
        ended=clock.iso(last),
        tpu=attempt.record.tpu,
        cause=failed.cause if failed else ending.cause,
        last_line=failed.tail if failed else "",
        worker=failed.worker if failed else next(iter(lost), None),
        started=attempt.started,
        begun=line_left([word.status for word in words]),
        price=attempt.record.price,
    )


def with_restart(run: StoredRun, verdict: Verdict) -> Verdict:
    """Return the verdict of an attempt with whether another one follows, and, where it does not, why."""
    if not run.restarts or verdict.outcome not in (runs.FAILED, *state.LOSSES):
        return verdict
    from tpuctl.flows.runs.checkpoints import last_committed  # noqa: PLC0415  once in a run

    checkpoint = last_committed(run.bucket, run.paths.checkpoints)
    verdict = msgspec.structs.replace(verdict, checkpoint=checkpoint)
    policy, earlier = run.record.restarts, run.earlier_verdicts(verdict.attempt)
    answer = state.decide(policy, [*earlier, verdict])
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


def unstarted_verdict(
    run: StoredRun, attempt: Attempt, outcome: str, evidence: str, begun: str | None = None
) -> Verdict:
    """Return the verdict of an attempt that ends now, before its script ran."""
    item, now = run.bucket.stat(run.paths.attempt(attempt.attempt)), clock.iso(run.bucket.now())
    return Verdict(
        run.name, outcome, attempt.attempt, now, evidence, basis=BY_MACHINE, ended=now, tpu=attempt.tpu,
        started=item.updated if item else now, begun=begun, price=attempt.price,
    )  # fmt: skip


def _doubt(words: Sequence[WorkerWord]) -> str:
    """Return why it is not known whether the silent ones go on; empty if none is silent, or a host knows."""
    silent = [word for word in words if word.silence > UNREACHABLE_AFTER and not word.lives]
    if not silent:
        return ""
    word = max(silent, key=lambda word: word.silence)
    answer = f": {word.host.detail}" if word.host and word.host.state is HostState.NO_ANSWER else ""
    return f"worker {word.worker} has been silent for {word.silence:.0f} s{answer}"
