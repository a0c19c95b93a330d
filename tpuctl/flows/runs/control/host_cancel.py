"""Stops a run whether or not the bucket has a record of it: its hosts know it, and read the request there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tpuctl import polling, runs
from tpuctl.errors import ConfigError, DeadlineError, NotFoundError, TpuctlError, joined_hints
from tpuctl.flows.hosts.published_keys import published_key
from tpuctl.flows.nodes.inventory import take_inventory
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.control import stop_requests
from tpuctl.flows.runs.control.cancel import (
    EVERY_SECOND,
    REACTION,
    Cancellation,
    CancelPlan,
    cancel,
    plan_cancel,
    tell,
)
from tpuctl.flows.runs.evidence.signs import RecordMissingError
from tpuctl.flows.runs.evidence.witnesses import HostRun, Witnesses
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import StopRequest
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout, values
from tpuctl.polling import Sleep, poll
from tpuctl.runs import BY_MACHINE, Verdict
from tpuctl.text.worker_numbers import named

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket


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
    provider: Provider, ssh: Ssh, witnesses: Witnesses, plan: CancelPlan | HostCancelPlan, report: Report,
    sleep: Sleep = polling.sleep,
) -> Cancellation:  # fmt: skip
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
