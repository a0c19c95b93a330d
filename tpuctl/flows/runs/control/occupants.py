"""Says which runs a TPU is busy with: those that go on there, and those that wait in its line.

- Stops a run whether or not the bucket has a record of it: its hosts know it, and read the request there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from tpuctl import clock, polling, runs
from tpuctl.bucket_layout import NodePaths, RunPaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    StateError,
    TpuctlError,
    joined_hints,
)
from tpuctl.flows.hosts.way_in import published_key
from tpuctl.flows.nodes.lookup import take_inventory
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.control import cancel as stop_requests
from tpuctl.flows.runs.control.cancel import (
    EVERY_SECOND,
    REACTION,
    Cancellation,
    CancelPlan,
    cancel,
    plan_cancel,
    tell,
)
from tpuctl.flows.runs.evidence.witnesses import HostRun, RecordMissingError, Witnesses
from tpuctl.flows.runs.lookup import WIDTH, StartedRun, started_on, unsettled
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import DEFAULT_GRACE, QUEUED, StopRequest
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout, values
from tpuctl.polling import Backoff, Sleep, poll
from tpuctl.printable import named
from tpuctl.runs import BY_MACHINE, Verdict
from tpuctl.shells import again

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket
    from tpuctl.nodes import Node


@dataclass(frozen=True)
class HostCancelPlan:
    """A run whose record the bucket lacks or does not tell, where it lives, and the request to stop it."""

    parts: Sequence[HostRun]
    request: StopRequest
    is_forced: bool = False
    """Whether the programs that watch over the script are killed."""
    reason: str = ""
    """Why the bucket does not tell; empty where it has no record."""

    @cached_property
    def places(self) -> dict[str, str]:
        """Its workers on each node, in words, by the node's name."""
        return {
            part.node.name: named([each.worker for each in self.parts if each.node is part.node])
            for part in self.parts
        }

    @property
    def place(self) -> str:
        """Where it lives, in words."""
        return ", ".join(f"{node} ({workers})" for node, workers in self.places.items())


def plan_any(
    bucket: Bucket, witnesses: Witnesses, name: str, by: str, grace: int, *, is_forced: bool = False,
    is_rehearsal: bool = False,
) -> CancelPlan | HostCancelPlan:  # fmt: skip
    """Return what stops a run, also one whose record is gone or cannot be read while its hosts know it.

    Raises as `plan_cancel`.
    """
    try:
        return plan_cancel(bucket, witnesses, name, by, grace, is_forced=is_forced, is_rehearsal=is_rehearsal)
    except (NotFoundError, RecordMissingError, ConfigError, DeadlineError) as error:
        parts = _find(witnesses, by, name, error)
        if not parts:
            raise
        is_gone = isinstance(error, (NotFoundError, RecordMissingError))
        request = stop_requests.request(StoredRun(bucket, name), by, grace)
        return HostCancelPlan(parts, request, is_forced, "" if is_gone else error.message)


def requests(plan: HostCancelPlan) -> list[HttpRequest]:
    """Return the requests that `cancel_any` would send, for --dry-run."""
    verb = "kill" if plan.is_forced else "stop"
    return [
        HttpRequest("SSH", f"{node} {workers}", f"{verb} {plan.request.run}")
        for node, workers in plan.places.items()
    ]


def cancel_any(
    provider: Provider,
    ssh: Ssh,
    witnesses: Witnesses,
    plan: CancelPlan | HostCancelPlan,
    report: Report,
    sleep: Sleep = polling.sleep,
) -> Cancellation:
    """Stop a run on its hosts, and return once nothing of it lives; raises as `cancel`."""
    if isinstance(plan, CancelPlan):
        return cancel(provider, ssh, witnesses, plan, report, sleep)
    return _cancel_on_hosts(ssh, witnesses, plan, report, sleep)


def _find(witnesses: Witnesses, owner: str, run: str, error: TpuctlError) -> list[HostRun]:
    """Return where a run lives whose record cannot be read for that error.

    The hosts of an owner's TPUs are asked, and those on which it works as its status says.
    """
    uids = error.sign.tpu_uids if isinstance(error, RecordMissingError) else frozenset()
    nodes = [
        node.id
        for item in take_inventory(witnesses.provider).allocations
        for node in item.nodes
        if item.is_owned_by(owner) or node.id.uid in uids
    ]
    answers = values(fanout(witnesses.at_work, nodes))
    return [part for answer in answers for part in answer.runs if part.run == run]


def _cancel_on_hosts(
    ssh: Ssh, witnesses: Witnesses, plan: HostCancelPlan, report: Report, sleep: Sleep
) -> Cancellation:
    """Ask a run to stop where it lives; its verdict is written nowhere.

    Raises the error of a host that was not told, and DeadlineError for one on which it did not end in time.
    """
    request = plan.request
    values(fanout(lambda part: _tell(ssh, witnesses, part, plan), plan.parts))
    nodes = dict.fromkeys(part.node.id for part in plan.parts)
    report(f"asked run '{request.run}' on its hosts to stop, with {request.grace} s to save")

    def look() -> bool | None:
        answers = [witnesses.at_work(node) for node in nodes]
        lives = any(part.run == request.run for answer in answers for part in answer.runs)
        return None if lives or any(answer.error for answer in answers) else True

    seconds = request.grace + REACTION
    try:
        poll(look, awaiting="its end", timeout=seconds, backoff=EVERY_SECOND, sleep=sleep)
    except DeadlineError as error:
        kill = "" if plan.is_forced else f"Kill what runs the script: tpuctl cancel {request.run} --force"
        down = [f"End whatever runs there: tpuctl down {node}" for node in plan.places]
        raise DeadlineError(
            f"Run '{request.run}' has not ended on {plan.place} within {seconds:.0f} s.",
            hint=joined_hints(kill, *down),
        ) from error
    evidence = f"stopped by {request.by}; {plan.reason or 'the bucket has no record of it'}"
    attempt = max(part.attempt for part in plan.parts)
    return Cancellation(
        Verdict(
            request.run, runs.STOPPED, attempt, request.requested, evidence, basis=BY_MACHINE,
            stopped_by=request.by,
        )
    )  # fmt: skip


def _tell(ssh: Ssh, witnesses: Witnesses, part: HostRun, plan: HostCancelPlan) -> None:
    key = published_key(part.node, witnesses.provider.host_keys(part.node.id), part.worker)
    with ssh.connect(part.node, part.worker, key) as session:
        tell(session, part.worker, plan.request, part.attempt, is_forced=plan.is_forced)


ENDING = "ending"
"""State of a run whose verdict is known before its last worker has ended."""
SOMEBODY = "somebody"
"""Who submitted a run whose record is gone."""
LONGEST_END = 120.0
"""Seconds within which workers end because another has: they learn of it, save, and are killed."""
BEATING = 60.0
"""Age of a worker's last word up to which it may still be at work."""
LOOKS = Backoff(first=0.5, longest=2.0)


@dataclass(frozen=True)
class Occupant:
    """A run that has not ended on a node."""

    run: str
    submitter: str
    since: str
    """ISO-8601, UTC, by the bucket's clock."""
    state: str
    """One of `state.LABELS`, or ENDING."""

    @property
    def waits(self) -> bool:
        """Whether it waits in line."""
        return self.state == QUEUED

    @property
    def is_ending(self) -> bool:
        """Whether it has its verdict, and its last workers are being stopped."""
        return self.state == ENDING


def occupants(bucket: Bucket, witnesses: Witnesses, node: Node, warn: Report) -> list[Occupant]:
    """Return the runs that have not ended on a node, the first in its line first.

    A run that cannot be read is told to `warn`, and not counted.
    """
    listed = [item for part in node.id.parts for item in reversed(started_on(bucket, NodePaths.of(part)))]
    started = {item.run: item for item in listed}

    def look(item: StartedRun) -> Occupant | None:
        run = StoredRun(bucket, item.run, warn)
        try:
            verdict = run.verdict()
            if verdict and run.is_closed:
                return _ending(item, run, verdict, node)
            from tpuctl.flows.runs.outcome import settle  # noqa: PLC0415  slow, and most nodes are free

            state = settle(run, witnesses)
            if state.error:
                raise state.error
            if state.verdict:
                return _ending(item, run, state.verdict, node)
            if not run.node_uids() & node.id.uids:
                return None
            return Occupant(item.run, _submitter(run), item.started, state.label)
        except NotFoundError:
            return None  # it was never started
        except BadObjectError as error:
            warn(f"Whether run '{item.run}' uses the TPU is unknown: {error.message}")
            return None

    names = unsettled(bucket, started, bucket.now() - timedelta(seconds=LONGEST_END + 1)) if started else []
    found = values(fanout(look, [started[name] for name in names], width=WIDTH))
    return [occupant for occupant in found if occupant]


def _submitter(run: StoredRun) -> str:
    """Return who submitted a run; SOMEBODY where its record is gone."""
    try:
        return run.record.submitter
    except RecordMissingError:
        return SOMEBODY


def _ending(item: StartedRun, run: StoredRun, verdict: Verdict, node: Node) -> Occupant | None:
    """Return a run that has failed just now and has workers on the node that have not ended yet."""
    age = (run.bucket.now() - clock.parse(verdict.decided)).total_seconds()
    if age > LONGEST_END:
        return None
    attempt = run.attempt(verdict.attempt)
    if not attempt.record.tpu.id.uids & node.id.uids:
        return None
    left = [word for word in attempt.words() if word.status and not word.is_over and word.age < BEATING]
    return Occupant(item.run, _submitter(run), item.started, ENDING) if left else None


def await_endings(
    bucket: Bucket, node: Node, busy: Sequence[Occupant], report: Report, *,
    seconds: float = LONGEST_END, sleep: Sleep = polling.sleep,
) -> list[Occupant]:  # fmt: skip
    """Return those of `busy` that do not end by themselves, after waiting for those that do."""
    ending = {occupant.run for occupant in busy if occupant.is_ending}
    left = ending

    def look() -> bool | None:
        nonlocal left
        left = {run for run in left if _is_ending(bucket, run, node)}
        return None if left else True

    if ending and not look():
        report(f"waiting until run '{min(left)}' has ended on every host")
        try:
            poll(look, awaiting="it", timeout=seconds, backoff=LOOKS, sleep=sleep)
        except DeadlineError:
            pass
    return [occupant for occupant in busy if occupant.run not in ending or occupant.run in left]


def _is_ending(bucket: Bucket, name: str, node: Node) -> bool:
    run = StoredRun(bucket, name)
    try:
        verdict = run.verdict()
        return bool(verdict and _ending(StartedRun(name, verdict.attempt, ""), run, verdict, node))
    except (NotFoundError, BadObjectError):
        return False


def busy_error(node: Node, busy: Sequence[Occupant], ages: Sequence[str], typed: Sequence[str]) -> StateError:
    """Return the error of a submission to a busy node, and the commands that help.

    `ages` says since when each run is there; `typed` are the words of the submission.
    """
    first, more = busy[0], len(busy) - 1
    others = f", and {more} more {'wait' if more > 1 else 'waits'}" if more else ""
    place = f"({first.state}, {ages[0]}){others}"
    return StateError(
        f"{node.name} is busy with run '{first.run}' of {first.submitter} {place}.",
        hint=joined_hints(
            "" if node.slices else f"Wait in line: {again(typed, {'--queue': ''})}",
            f"Stop it, and start: {again(typed, {'--replace': ''})}",
            f"Wait first: tpuctl wait {first.run}",
        ),
        busy=[occupant.run for occupant in busy],
    )


def check_replaceable(bucket: Bucket, node: Node, busy: Sequence[Occupant], run: str) -> None:
    """Raise what would keep `run` from its start once the others are stopped.

    ConflictError for a name that is taken, StateError where others wait in line: they would start instead.
    """
    if bucket.stat(RunPaths(run).record):
        raise ConflictError(f"There is a run '{run}' already.", hint="Choose another --name.")
    waiting = [occupant.run for occupant in busy if occupant.waits]
    if waiting:
        raise StateError(
            f"In the line of {node.name} wait: {', '.join(waiting)}. They would start in its place.",
            hint=f"Wait behind them (--queue), or take one out of the line: tpuctl cancel {waiting[0]}",
        )


def stop_all(
    bucket: Bucket, provider: Provider, ssh: Ssh, witnesses: Witnesses, node: Node,
    busy: Sequence[Occupant], by: str, report: Report,
) -> None:  # fmt: skip
    """Stop runs for an account, and return once their workers have ended: the chips are free then.

    Raises as `cancel` does.
    """

    for occupant in busy:
        plan = plan_any(bucket, witnesses, occupant.run, by, DEFAULT_GRACE)
        cancel_any(provider, ssh, witnesses, plan, report)
    ended = [replace(occupant, state=ENDING) for occupant in busy]
    await_endings(bucket, node, ended, report)
