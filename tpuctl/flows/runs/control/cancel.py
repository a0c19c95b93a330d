"""Stops a run: asks its workers, on their hosts and through the bucket, and waits for their last words.

- Writes the request to stop a run into the bucket, where every worker of the run reads it.
- Waits for the end of a run; changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tpuctl import clock, polling, runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    InterruptedByUser,
    NotFoundError,
    TpuctlError,
    UsageError,
    in_one_line,
    joined_hints,
)
from tpuctl.flows.hosts.way_in import published_key
from tpuctl.flows.nodes.lookup import is_deletable
from tpuctl.flows.progress import Outage, Report
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, Witnesses
from tpuctl.flows.runs.outcome import error_of, settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import REPLACEMENTS, StoredRun
from tpuctl.host.worker.records import MOST_GRACE, STOP_FILE, StopRequest, WorkerStatus, encode
from tpuctl.nodes import HttpRequest
from tpuctl.polling import Backoff, Clock, Sleep, poll
from tpuctl.printable import named
from tpuctl.runs import BY_MACHINE, Attempt, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh, SshSession
    from tpuctl.cloud.storage import Bucket


def ask(run: StoredRun, by: str, grace: int) -> StopRequest:
    """Write a request, and return the one that the bucket holds: of two the first counts."""
    name, own = run.paths.stop, request(run, by, grace)
    for _ in range(REPLACEMENTS):
        item = run.bucket.stat(name)
        try:
            if item is None:
                run.bucket.create(name, encode(own))
                return own
            other = _stored(run)
            if other:
                return other
            run.bucket.replace(item, encode(own))
            return own
        except ConflictError:
            continue  # another command was first
    raise ConflictError(f"The request to stop run '{run.name}' keeps changing.", hint="Try again.")


def request(run: StoredRun, by: str, grace: int) -> StopRequest:
    """Return the request of an account for now, with so many seconds to save."""
    return StopRequest(run.name, by, clock.iso(run.bucket.now()), grace)


def _stored(run: StoredRun) -> StopRequest | None:
    """Return the request in the bucket; None for anything that workers do not take for one."""
    try:
        return run.stop_request()
    except BadObjectError as error:
        run.warn(f"{error.message} It is replaced.")
        return None


REACTION = 60.0
"""Seconds beyond the grace: to read the request (each 10), to ship the log, and to say the last word."""
EVERY_SECOND = Backoff(first=0.3, longest=1.0)
SSH_TIMEOUT = 20.0
"""Seconds for a host's answer: the bucket tells it, too."""
NO_FILES = 94
TELL = f"""
umask 077; test -e "$1/lock" || exit {NO_FILES}
cat >"$1/{STOP_FILE}.$$" && mv -f "$1/{STOP_FILE}.$$" "$1/{STOP_FILE}"
"""
"""For sh: writes the request on stdin into the attempt's folder $1, at once or not at all."""
KILL = """
told=$?
read -r pid of <"$1/started"
grep -qaF "$2" "/proc/${pid:-0}/cmdline" || exit $told
kill -CONT "$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")"
kill -KILL "$pid"
exit $told
"""
"""For sh, after TELL: kills the supervisor, and wakes its guard, which ends the script and reports it.

$2 is in the command line of every supervisor of the run: a process number may be another's by now.
"""


@dataclass(frozen=True)
class CancelPlan:
    """A run, how it is now, and the request to stop it."""

    run: StoredRun
    state: RunState | None
    """None for a run that was not started."""
    attempt: StoredAttempt | None
    by: str
    grace: int
    is_forced: bool = False
    """Whether the programs that watch over the script are killed: they may hang."""

    @property
    def verdict(self) -> Verdict | None:
        """How the run, or its last attempt, ended, if it has."""
        return self.state.verdict if self.state else None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and is not started again."""
        return self.verdict is not None and not self.verdict.restarts


class Cancellation(NamedTuple):
    """What became of a run that was asked to stop."""

    verdict: Verdict
    statuses: Sequence[WorkerStatus | None] = ()


def plan_cancel(
    bucket: Bucket, witnesses: Witnesses, name: str, by: str, grace: int, *, is_forced: bool = False,
    is_rehearsal: bool = False,
) -> CancelPlan:  # fmt: skip
    """Return what stops a run; a rehearsal writes no verdict of a run that has ended by now.

    Raises UsageError for a name or a grace that none can have, NotFoundError without such a run.
    """
    if not 0 <= grace <= MOST_GRACE:
        raise UsageError(f"The grace is at most {MOST_GRACE} seconds.", hint="Leave --grace out for 30s.")
    run = StoredRun(bucket, runs.check_name(name))
    try:
        run.record  # noqa: B018  read for its error
    except BadObjectError:
        pass  # what runs is stopped all the same
    try:
        attempt = run.last_readable_attempt()
    except NotFoundError:
        verdict = run.verdict()
        return CancelPlan(run, RunState(verdict) if verdict else None, None, by, grace, is_forced)
    state = RunState(run.verdict()) if is_rehearsal else settle(run, witnesses)
    return CancelPlan(run, state, attempt, by, grace, is_forced)


def requests(bucket: Bucket, plan: CancelPlan) -> list[HttpRequest]:
    """Return the requests that `cancel` would send, for --dry-run; none for a run that has ended."""
    if plan.is_over:
        return []
    rehearsal = bucket.dry_run()
    rehearsal.create(plan.run.paths.stop, encode(request(plan.run, plan.by, plan.grace)))
    if not plan.attempt or plan.verdict:
        return rehearsal.requests
    record = plan.attempt.record
    hosts = f"{record.tpu.name} {named(record.workers)}"
    verb = "kill" if plan.is_forced else "stop"
    return [*rehearsal.requests, HttpRequest("SSH", hosts, f"{verb} {plan.run.name}")]


def cancel(
    provider: Provider,
    ssh: Ssh,
    witnesses: Witnesses,
    plan: CancelPlan,
    report: Report,
    sleep: Sleep = polling.sleep,
) -> Cancellation:
    """Ask every worker to stop, and return once they have said that they ended.

    The TPU stays. A run that has ended is left as it is, unless what hangs on a host is to be killed. For one
    that waits to be started again this is the request alone. Hosts are asked also where the bucket does not
    take the request: `report` gets its error at the end. Raises that error where no host was asked, either,
    DeadlineError when workers did not end in time, and InterruptedByUser on Ctrl-C: the run still ends.
    """
    if plan.verdict and plan.is_over and not (plan.is_forced and plan.attempt and _left(plan, witnesses)):
        return Cancellation(plan.verdict, plan.attempt.statuses() if plan.attempt else ())
    try:
        request, refusal = _write(plan)
        if refusal is None:
            report(f"asked run '{plan.run.name}' to stop, with {request.grace} s to save")
        if plan.attempt is None:
            return Cancellation(_end_unstarted(plan, request))
        if plan.verdict and not plan.is_over:
            return Cancellation(plan.verdict)
        answers = _ask_hosts(provider, ssh, plan, plan.attempt.record, request, is_in_bucket=refusal is None)
        for text in answers.notes:
            report(text)
        if refusal:
            return _without_bucket(plan, witnesses, request, answers, refusal, report, sleep)
        is_known = answers.are_without_files and ssh.user == plan.attempt.record.login
        if is_known and not any(plan.attempt.statuses()):
            return Cancellation(_end_unstarted(plan, request))
        return _await_end(plan, witnesses, request, report, sleep)
    except KeyboardInterrupt as interrupt:
        raise InterruptedByUser(
            f"Interrupted; if run '{plan.run.name}' was asked to stop, it ends all the same.",
            hint=f"See how it ends: tpuctl wait {plan.run.name}",
        ) from interrupt


def _write(plan: CancelPlan) -> tuple[StopRequest, TpuctlError | None]:
    """Return the request that the bucket holds; where it takes none, that for the hosts, with its error.

    Raises the error where only the bucket can stop the run.
    """
    if plan.is_over:  # what hangs on a host still runs
        return request(plan.run, plan.by, plan.grace), None
    try:
        return ask(plan.run, plan.by, plan.grace), None
    except TpuctlError as error:
        if plan.attempt is None or plan.verdict:
            raise
        return request(plan.run, plan.by, plan.grace), error


def _without_bucket(
    plan: CancelPlan, witnesses: Witnesses, request: StopRequest, answers: _Answers, refusal: TpuctlError,
    report: Report, sleep: Sleep,
) -> Cancellation:  # fmt: skip
    """Wait for the workers that were asked on their hosts alone; raises the bucket's error where none was."""
    if not answers.are_told:
        raise refusal
    report(f"asked run '{plan.run.name}' on its hosts to stop, with {request.grace} s to save")
    try:
        return _await_end(plan, witnesses, request, report, sleep)
    finally:
        report(f"The bucket did not take the request: {in_one_line(refusal)}")


class _Answers(NamedTuple):
    """What the hosts of a run said to the request."""

    notes: Sequence[str]
    """A sentence about each that was not reached, or knows nothing of the run."""
    are_told: bool = False
    """Whether at least one has the request."""
    are_without_files: bool = False
    """Whether none has a trace of the run; what is started later reads the request in the bucket."""


def tell(
    session: SshSession, worker: int, request: StopRequest, attempt: int, *, is_forced: bool = False
) -> bool:
    """Write a request into the files of an attempt on a worker's host; return whether it has them.

    Raises TpuctlError where it could not be written.
    """
    of_run, command = f".tpuctl/runs/{request.run}/", TELL + KILL if is_forced else TELL
    argv = ["sh", "-c", command, "sh", f"{of_run}{attempt}", of_run]
    result = session.run(argv, SSH_TIMEOUT, encode(request))
    if result.exit_code not in (0, NO_FILES):
        reason = (result.stderr.strip().splitlines() or ["no answer"])[-1]
        raise TpuctlError(f"worker {worker}: {reason}.")
    return result.exit_code == 0


def _ask_hosts(
    provider: Provider, ssh: Ssh, plan: CancelPlan, attempt: Attempt, request: StopRequest, *,
    is_in_bucket: bool,
) -> _Answers:  # fmt: skip
    """Tell the workers on their hosts, at once."""
    try:
        node = provider.get_node(attempt.tpu.id)
        keys = provider.host_keys(node.id)
    except TpuctlError as error:
        then = " The workers read the request in the bucket." if is_in_bucket else ""
        return _Answers([f"{error.message}{then}"])
    with ssh.pool(node, lambda worker: published_key(node, keys, worker)) as pool:
        results = pool.run_all(
            lambda session, worker: tell(session, worker, request, attempt.attempt, is_forced=plan.is_forced),
            attempt.workers,
        )
    absent = [result.item for result in results if result.value is False]
    failed = {result.item: result.error for result in results if result.error}
    reasons = {
        f"{named(absent)} {_have(absent)} no files of the run.": absent,
        _unreached(failed): list(failed),
    }
    notes = [
        _untold(reason, workers, is_in_bucket=is_in_bucket) for reason, workers in reasons.items() if workers
    ]
    are_told = any(result.value for result in results)
    return _Answers(notes, are_told, len(absent) == len(results))


def _unreached(errors: Mapping[int, TpuctlError]) -> str:
    """Return why the first of some workers was not reached, and which others were not; empty for none."""
    if not errors:
        return ""
    first, *others = errors
    more = f" Nor {'were' if others[1:] else 'was'} {named(others)} reached." if others else ""
    return f"{errors[first].message}{more}"


def _untold(reason: str, workers: Sequence[int], *, is_in_bucket: bool) -> str:
    """Return a note about workers that the request did not reach over SSH."""
    if not is_in_bucket:
        return f"{reason} {'They were' if workers[1:] else 'It was'} not asked to stop."
    then = "they run, they read" if workers[1:] else "it runs, it reads"
    return f"{reason} If {then} the request in the bucket."


def _have(workers: Sequence[int]) -> str:
    return "have" if workers[1:] else "has"


def _end_unstarted(plan: CancelPlan, request: StopRequest) -> Verdict:
    """Return the verdict of a run whose submission was killed before any worker had started.

    One that is still on its way starts workers that read the request, and say better how they ended.
    """
    record, now = plan.attempt.record if plan.attempt else None, clock.iso(plan.run.bucket.now())
    evidence = f"stopped by {request.by} before it had started"
    return plan.run.end(
        Verdict(
            plan.run.name, runs.STOPPED, record.attempt if record else 1, now, evidence,
            basis=BY_MACHINE, silent=record.workers if record else (), stopped_by=request.by, ended=now,
            tpu=record.tpu if record else None, begun="",
        )
    )  # fmt: skip


def _await_end(
    plan: CancelPlan, witnesses: Witnesses, request: StopRequest, report: Report, sleep: Sleep
) -> Cancellation:
    over, outage = set[int](), Outage(report, "waiting")

    def look() -> RunState | None:
        try:
            state = answer()
        except DeadlineError as error:  # a service that does not answer: the workers end all the same
            outage.note(error)
            return None
        outage.end()
        return state

    def answer() -> RunState | None:
        state = settle(plan.run, witnesses)
        finished = {status.worker for status in state.statuses if status and status.is_finished}
        new = sorted(finished - over)
        if new:
            over.update(new)
            report(f"{named(new)} {_have(new)} ended")
        if state.error:
            raise state.error
        if state.verdict and (state.verdict.stopped_by or plan.is_forced) and _left(plan, witnesses):
            return None  # it has its verdict, but the chips of some are not free
        return state if state.verdict else None

    assert plan.attempt is not None
    seconds = request.grace + REACTION
    try:
        state = poll(look, awaiting="its end", timeout=seconds, backoff=EVERY_SECOND, sleep=sleep)
    except DeadlineError as error:
        trouble = outage.message
        raise (_unknown(plan, trouble) if trouble else _not_over(plan, witnesses, seconds)) from error
    assert state.verdict is not None
    return Cancellation(state.verdict, plan.attempt.statuses())


def _left(plan: CancelPlan, witnesses: Witnesses) -> list[int]:
    """Return the workers that have not ended as far as is known; a host may know that nothing runs there."""
    assert plan.attempt is not None
    record, statuses = plan.attempt.record, plan.attempt.statuses()
    pairs = zip(record.workers, statuses, strict=True)
    left = [worker for worker, status in pairs if not (status and status.is_finished)]
    hosts = witnesses.hosts(plan.run.name, record, left)
    return [worker for worker in left if not (worker in hosts and hosts[worker].is_free)]


def _unknown(plan: CancelPlan, trouble: str) -> DeadlineError:
    name = plan.run.name
    return DeadlineError(
        f"Run '{name}' was asked to stop, but whether it has ended is unknown: {trouble}",
        hint=f"Ask again: tpuctl cancel {name}",
    )


def _not_over(plan: CancelPlan, witnesses: Witnesses, seconds: float) -> DeadlineError:
    assert plan.attempt is not None
    workers = _left(plan, witnesses)
    tpu, run = plan.attempt.record.tpu, plan.run.name
    is_named = is_deletable(witnesses.provider, tpu.id)
    deletion = f"End whatever runs there: tpuctl down {tpu.name}" if is_named else ""
    return DeadlineError(
        f"{named(workers).capitalize()} of run '{run}' {_have(workers)} not said within {seconds:.0f} s"
        " that the script ended.",
        hint=joined_hints(
            f"Ask again: tpuctl cancel {run}",
            "" if plan.is_forced else f"Kill what runs the script: tpuctl cancel {run} --force",
            f"What is wrong: tpuctl why {tpu.name}",
            deletion,
        ),
        workers=list(workers),
    )


PAUSES = Backoff(first=0.5, longest=10.0)


def await_end(
    run: StoredRun,
    witnesses: Witnesses,
    seconds: float,
    report: Report,
    sleep: Sleep = polling.sleep,
    clock: Clock = time.monotonic,
) -> Verdict:
    """Return the verdict of a run once it has one; `report` gets each change of its state.

    A service that does not answer is waited for. Raises NotFoundError without such a run, DeadlineError after
    so many seconds, BadObjectError and RecordMissingError where no verdict can come any more, and
    InterruptedByUser on Ctrl-C.
    """
    deadline, label = clock() + seconds, ""
    try:
        for pause in PAUSES.pauses():
            text = ""
            try:
                state = settle(run, witnesses)
                if state.verdict:
                    return state.verdict
                text = _label(state)
            except DeadlineError as error:
                text = error.message
            if text != label:
                report(text)
                label = text
            if clock() >= deadline:
                raise _late(run, seconds, label)
            sleep(max(0.0, min(pause, deadline - clock())))
    except KeyboardInterrupt as interrupt:
        raise InterruptedByUser(
            f"Interrupted; run '{run.name}' goes on.", hint=next_steps(run.name)
        ) from interrupt
    raise AssertionError("pauses() has no end")


def next_steps(run: str) -> str:
    """Return what a user may do about a run that goes on."""
    return joined_hints(f"Follow it: tpuctl logs -f {run}", f"Stop it: tpuctl cancel {run}")


def failure_of(verdict: Verdict) -> TpuctlError | None:
    """Return the error of a run that did not succeed, with how it ended for programs."""
    error = error_of(verdict)
    if error:
        error.result = summary(verdict)
    return error


def summary(verdict: Verdict) -> dict[str, object]:
    """Return how a run ended, for programs."""
    return {
        "run": verdict.run,
        "outcome": verdict.outcome,
        "evidence": verdict.evidence,
        "exit_code": verdict.exit_code,
    }


def _label(state: RunState) -> str:
    if state.error:
        raise state.error
    if state.sign:
        raise RecordMissingError(state.sign)
    reason = state.unanswered or state.doubt
    return f"{state.label}: {reason}" if reason else state.label


def _late(run: StoredRun, seconds: float, label: str) -> DeadlineError:
    return DeadlineError(
        f"Run '{run.name}' has not ended within {seconds:.0f} s: it is {label}.", hint=next_steps(run.name)
    )
