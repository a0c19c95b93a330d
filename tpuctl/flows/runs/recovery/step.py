"""Takes a run one step on, from wherever the last watcher was when it ended: watchers repeat it.

Each act is one that can be repeated: objects are created once, the machine has a name of its own, and a host
starts an attempt once.

- Ends a run that was asked to stop while it was, or was to be, started again: what was made for it goes.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import msgspec

from tpuctl import clock, polling, runs
from tpuctl.bucket_layout import bundle
from tpuctl.bucket_objects import LAST_ATTEMPT
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    NotFoundError,
    PreemptedError,
    QuotaError,
    StockoutError,
    TpuctlError,
    UsageError,
    joined_hints,
)
from tpuctl.flows.hosts.way_in import published_key
from tpuctl.flows.runs import state
from tpuctl.flows.runs.evidence.decision import ENDED, NEVER_STARTED_AFTER, HostState
from tpuctl.flows.runs.outcome import settle, unstarted_verdict, with_restart
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.authority import machine_of, own_node
from tpuctl.flows.runs.recovery.lease import (
    BUSY,
    ENDED_FOR_GOOD,
    GOES_ON,
    RESTARTED,
    WAITS,
    HeldLease,
    WatchEvent,
)
from tpuctl.flows.runs.recovery.machine import (
    delete_all,
    find_or_make,
    machine_name,
    say_what_stays,
    that_bills,
)
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch, launch_values, resumption
from tpuctl.flows.runs.submission.launch_sign import LaunchSign
from tpuctl.flows.runs.submission.plan import attempt_on, own_variables, require_dataset
from tpuctl.flows.runs.submission.specs import Launch, specs
from tpuctl.flows.runs.submission.submit import signed
from tpuctl.nodes import Node, NodeState
from tpuctl.polling import Backoff, Sleep, poll
from tpuctl.recovery import Lease, Machine
from tpuctl.runs import BY_MACHINE, Verdict

PATIENCE = 3.0 * leases.SECONDS
"""Seconds: a watcher that was killed holds its lease for a part of them."""
PAUSES = Backoff(first=0.5, longest=5.0)


def end(run: StoredRun, tools: Tools, sleep: Sleep = polling.sleep) -> Verdict | None:
    """Return how a run ended that was asked to stop, once nothing bills that was made for it.

    Raises DeadlineError where a watcher that starts it again does not let go, or a service does not answer.
    """
    reported, unanswered, last = set[str](), list[DeadlineError](), ""

    def look() -> WatchEvent | None:
        nonlocal last
        try:
            event = step(run, tools)
        except DeadlineError as error:
            unanswered.append(error)
            raise
        last = f"attempt {event.attempt} {event.action} ({event.detail})"
        if event.action == BUSY:
            last = "a watcher still starts it"
        if event.line not in reported:
            reported.add(event.line)
            tools.report(event.line)
        return event if event.action == ENDED_FOR_GOOD else None

    try:
        poll(look, awaiting="the end of its restart", timeout=PATIENCE, backoff=PAUSES, sleep=sleep)
    except DeadlineError as error:
        standing = "what was made for it may bill" if unanswered else last
        raise DeadlineError(
            f"Run '{run.name}' was asked to stop, but {standing}: {error.message}",
            hint=joined_hints(f"Ask again: tpuctl cancel {run.name}", "What bills: tpuctl ls"),
            **error.facts,
        ) from error
    return run.verdict()


def is_made_for(run: str, node: str, attempts: int) -> bool:
    """Return whether a node was made for a restart of a run, and is deleted with its end."""
    return node in {machine_name(run, number) for number in range(2, attempts + 1)}


NO_CAPACITY = (StockoutError, QuotaError, PreemptedError)
"""Errors of a search that may go better the next time."""


def step(run: StoredRun, tools: Tools) -> WatchEvent:
    """Settle the run's last attempt, and start the next one if its policy allows that.

    A machine that was made for a run which has ended is deleted. Raises NotFoundError without such a run,
    UsageError where values are missing that nobody here knows, and tpuctl's errors of the services.
    """
    try:
        return _step(run, tools)
    except leases.LeaseLostError as error:
        return WatchEvent(run.name, error.attempt, BUSY, "another watcher has taken over")


def _step(run: StoredRun, tools: Tools) -> WatchEvent:
    attempt = run.last_attempt()
    if not run.restarts:
        return _observed(run)
    pending = leases.read(run, attempt.number)
    if pending and not pending.is_over:
        return _finish_start(run, attempt, tools)
    state = settle(run, tools.witnesses)
    if state.error:
        raise state.error
    verdict = state.verdict
    if verdict is None:
        return WatchEvent(run.name, attempt.number, GOES_ON, state.label)
    if verdict.restarts and run.stop_request():
        verdict = _end_stopped(run, verdict, f" ({verdict.outcome}: {verdict.evidence})")
    if not verdict.restarts:
        return _cleaned_up(run, verdict, tools)
    return _restart(run, verdict, tools)


def _observed(run: StoredRun) -> WatchEvent:
    """Return what a run does that is never started again: watchers leave it and its machine alone."""
    verdict = run.verdict()
    number = run.last_attempt().number
    if verdict:
        return WatchEvent(run.name, number, ENDED_FOR_GOOD, verdict.outcome)
    return WatchEvent(run.name, number, GOES_ON, "it has no restarts")


def _end_stopped(run: StoredRun, verdict: Verdict, former: str) -> Verdict:
    """Write that a run which would have been started again was stopped by who asked for that."""
    request = run.stop_request()
    assert request is not None
    evidence = f"stopped by {request.by} while it was to be started again{former}"
    cause = verdict.outcome if verdict.outcome in state.LOSSES else verdict.cause
    stopped = msgspec.structs.replace(
        verdict, outcome=runs.STOPPED, evidence=evidence, stopped_by=request.by, restarts=False,
        decided=clock.iso(run.bucket.now()), exit_code=None, basis=BY_MACHINE, cause=cause,
    )  # fmt: skip
    return run.end(stopped, is_refuted=lambda other: other.restarts)


def _cleaned_up(run: StoredRun, verdict: Verdict, tools: Tools) -> WatchEvent:
    """Delete what was made for a run that has ended for good."""
    machine = _recipe(run)
    last = run.last_attempt()
    if last.number > 1 or leases.read(run, verdict.attempt + 1):
        delete_all(tools, run.name, machine)
        if last.record.tpu.uid != run.attempt(1).record.tpu.uid:
            say_what_stays(tools, run, machine.owner, last.record.tpu)
    launch_values.forget(run.bucket.name, run.name)
    return WatchEvent(run.name, verdict.attempt, ENDED_FOR_GOOD, verdict.outcome)


def _recipe(run: StoredRun) -> Machine:
    machine = run.record.machine
    assert machine is not None
    return machine


def _restart(run: StoredRun, verdict: Verdict, tools: Tools) -> WatchEvent:
    number = verdict.attempt + 1
    if number > LAST_ATTEMPT:
        raise UsageError(
            f"Run '{run.name}' has attempt {verdict.attempt}, which is the last that a run can have.",
            hint=f"Its verdict was written by somebody else. End it: tpuctl cancel {run.name}",
            run=run.name,
        )
    recipe = machine_of(run.bucket.name, run.record, tools.limits)
    _require_what_it_needs(run, tools)
    held = leases.take(run, number, tools.holder)
    if isinstance(held, Lease):
        return WatchEvent(run.name, number, BUSY, f"{held.holder} starts it")
    tools = replace(tools, provider=held.guard(tools.provider))
    with held:
        if run.bucket.stat(run.paths.attempt(number)):
            return WatchEvent(run.name, number, GOES_ON, "another watcher has just started it")
        run.keep_verdict(verdict)
        before = run.attempt(verdict.attempt).record.tpu
        is_bad = state.needs_other_machine([*run.earlier_verdicts(verdict.attempt), verdict])
        try:
            node = find_or_make(tools, run, recipe, number, before, is_bad=is_bad)
        except NO_CAPACITY as error:
            return WatchEvent(run.name, number, WAITS, error.message)
        with that_bills(run.name, node):
            return _start(run, held, node, number, tools)


def _start(run: StoredRun, held: HeldLease, node: Node, number: int, tools: Tools) -> WatchEvent:
    held.check()
    if run.stop_request():
        return _stopped_meanwhile(run, number, tools)
    delete_all(tools, run.name, _recipe(run), besides=node.id.uid)
    price = tools.recorded_price(node)
    record = attempt_on(node, run.record.framework, run.bucket.now(), number, price)
    try:
        attempt = run.create_attempt(signed(record, login=tools.ssh.user))
    except ConflictError:
        return WatchEvent(run.name, number, GOES_ON, "another watcher has just started it")
    return _launch(run, held, attempt, node, tools)


def _launch(run: StoredRun, held: HeldLease, attempt: StoredAttempt, node: Node, tools: Tools) -> WatchEvent:
    number = attempt.number
    item = run.bucket.stat(bundle(run.record.bundle_sha256))
    try:
        if item is None:
            raise NotFoundError(f"The code of run '{run.name}' is not in the bucket any more.")
        key = secrets.token_hex(32)
        left = resumption.restarts_left(run.record, run.earlier_verdicts(number))
        start = replace(_launch_of(run, tools, node), waits=True, restarts=left)
        every = specs(run.bucket.name, run.record, attempt.record, start, item.size, key)
        with LaunchSign(run, number):
            launch.launch_all(tools.ssh, node, tools.provider.host_keys(node.id), every)
    except TpuctlError as error:
        held.check()
        return _not_started(run, attempt, f"it could not be started: {error.message}", tools)
    if run.stop_request():
        return _stopped_meanwhile(run, number, tools)
    return WatchEvent(run.name, number, RESTARTED, f"on {node.name} in {node.zone}")


def _require_what_it_needs(run: StoredRun, tools: Tools) -> None:
    """Raise before anything bills where a run cannot be started: its code, dataset or values are gone."""
    if run.bucket.stat(bundle(run.record.bundle_sha256)) is None:
        raise NotFoundError(
            f"The code of run '{run.name}' is not in the bucket any more.",
            hint=f"Submit the script anew from your own files, and end this one: tpuctl cancel {run.name}",
        )
    if run.record.dataset and run.bucket.name == (run.record.data_bucket or tools.data_bucket):
        require_dataset(run.bucket, run.record)
    _launch_of(run, tools, None)


def _launch_of(run: StoredRun, tools: Tools, node: Node | None) -> Launch:
    """Return what the script is started with, on a node."""
    record = run.record
    data_bucket = record.data_bucket or tools.data_bucket
    own = own_variables(data_bucket, record.framework, node, record.dataset) if node else {}
    return launch_values.restored(run.bucket.name, record, tools.values, own)


def _stopped_meanwhile(run: StoredRun, number: int, tools: Tools) -> WatchEvent:
    """End a restart that somebody has asked to stop: what it has made goes."""
    delete_all(tools, run.name, _recipe(run))
    verdict = run.verdict() or unstarted_verdict(run, run.last_attempt().record, runs.STOPPED, "")
    if verdict.restarts or not verdict.evidence:
        _end_stopped(run, verdict, "")
    return WatchEvent(run.name, number, ENDED_FOR_GOOD, runs.STOPPED)


def _not_started(run: StoredRun, attempt: StoredAttempt, evidence: str, tools: Tools) -> WatchEvent:
    """Write that an attempt was lost before its script ran; the next step decides what follows."""
    word = tools.witnesses.node(run.bucket, attempt.record.tpu.id)
    outcome = runs.PREEMPTED if word.state is NodeState.PREEMPTED else runs.LOST
    run.end(with_restart(run, unstarted_verdict(run, attempt.record, outcome, evidence)))
    return WatchEvent(run.name, attempt.number, WAITS, evidence)


def _finish_start(run: StoredRun, attempt: StoredAttempt, tools: Tools) -> WatchEvent:
    """Go on with the start of an attempt where another watcher was killed: a host starts it once."""
    number = attempt.number
    held = leases.take(run, number, tools.holder)
    if isinstance(held, Lease):
        return WatchEvent(run.name, number, BUSY, f"{held.holder} starts it")
    with held, that_bills(run.name, attempt.record.tpu):
        words = {word.worker: word for word in attempt.words()}
        silent = [worker for worker, word in words.items() if word.status is None]
        hosts = tools.witnesses.hosts(run.name, attempt.record, silent)
        absent = [worker for worker in silent if hosts[worker].state is HostState.ABSENT]
        unknown = [worker for worker in silent if hosts[worker].state is HostState.NO_ANSWER]
        if not absent and not unknown:
            return WatchEvent(run.name, number, GOES_ON, "every worker had started")
        node = tools.witnesses.node(run.bucket, attempt.record.tpu.id)
        if node.state in ENDED:
            return _not_started(run, attempt, f"the node is {node.state}", tools)
        if run.stop_request():
            return _stopped_meanwhile(run, number, tools)
        if unknown:
            age = min(word.age for word in words.values())
            if age <= NEVER_STARTED_AFTER:
                held.keep()
                return WatchEvent(run.name, number, WAITS, f"worker {unknown[0]}: {hosts[unknown[0]].detail}")
        elif len(absent) == len(words):
            machine_of(run.bucket.name, run.record, tools.limits)
            own = own_node(tools.provider, run.bucket, run.record, attempt.record.tpu)
            if own is None:
                return _not_started(run, attempt, "its node was not made for this run", tools)
            return _launch(run, held, attempt, own, tools)
        started = [worker for worker in words if worker not in absent]
        event = _not_started(run, attempt, "its start was interrupted on some hosts", tools)
        _end_on(run, attempt, started, tools)
        return event


def _end_on(run: StoredRun, attempt: StoredAttempt, workers: list[int], tools: Tools) -> None:
    """End the supervisors that wait for hosts on which the attempt will never start."""
    try:
        node = own_node(tools.provider, run.bucket, run.record, attempt.record.tpu)
        if node is None:
            return
        keys = tools.provider.host_keys(node.id)
    except TpuctlError:
        return  # they give up by themselves
    with tools.ssh.pool(node, lambda worker: published_key(node, keys, worker)) as pool:
        pool.run_all(lambda session, _: launch.stop_attempt(session, run.name, attempt.number), workers)
