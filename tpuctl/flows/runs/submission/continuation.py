"""Goes on with a submission that was killed at any moment: writes and starts what is missing, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from tpuctl.errors import ConflictError, NotFoundError, StateError
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_attempt import StoredAttempt, age_of
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values
from tpuctl.flows.runs.submission.plan import SubmitPlan
from tpuctl.flows.runs.submission.submit import (
    UNDER_WAY,
    Submission,
    launch_attempt,
    read_host_keys,
    signed,
    store_code,
    take_turn,
)
from tpuctl.runs import Attempt, Run, submitter

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket
    from tpuctl.flows.runs.evidence.witnesses import Witnesses

OF_ONE_SUBMIT = frozenset({"created", "submitter", "token", "git", "accelerator", "machine"})
"""Fields in which the records of two equal submissions differ."""


def free_in(run: StoredRun, witnesses: Witnesses) -> float | None:
    """Return the seconds after which nobody can be starting a run any more of which a worker was not started.

    None for a run that was started on every worker, or has ended.
    """
    bucket, names = run.bucket, [run.paths.record]
    if not run.attempt_numbers():
        if run.verdict():
            return None
    else:
        state = settle(run, witnesses)
        if state.verdict or state.error:
            return 0.0 if state.verdict and state.verdict.is_unstarted else None
        attempt = run.last_attempt()
        if None not in attempt.statuses():
            return None
        names = [run.paths.attempt(attempt.number), run.paths.launch(attempt.number)]
    ages = [age_of(item, bucket.now()) for item in map(bucket.stat, names) if item]
    return max(0.0, UNDER_WAY - min(ages, default=0.0))


def go_on(
    bucket: Bucket, provider: Provider, ssh: Ssh, plan: SubmitPlan, report: bundles.Report | None = None
) -> Submission:
    """Submit a planned run, or do what another process, of any machine, has left of it.

    Of several at once one writes each record, and no worker starts twice. Ctrl-C leaves what is started.
    Raises ConflictError for a run of this name that asks for something else, and what `submit` raises.
    """
    run = StoredRun(bucket, plan.run.run)
    check_same(run, plan)
    host_keys = read_host_keys(provider, plan)
    notes = store_code(bucket, plan.code, report)
    try:
        run.create(signed(plan.run))
    except ConflictError:
        check_same(run, plan)
    record = StoredRun(bucket, run.name).record
    notes += launch_values.keep(bucket.name, record, plan)
    plan = replace(plan, run=record, attempt=_next_attempt(run, plan))
    attempt = _attempt(run, plan, ssh.user)
    is_here = attempt.record.tpu.uid == plan.node.id.uid
    if is_here and None in attempt.statuses():
        _require_same_key(attempt, record, ssh.user)
        launch_attempt(provider, ssh, plan, run, attempt.record, host_keys, goes_on=True)
    return Submission(record, tuple(notes))


def _require_same_key(attempt: StoredAttempt, record: Run, login: str) -> None:
    """Raise StateError where workers of the attempt may have the secret of another machine's SSH key."""
    is_partly_started = any(attempt.statuses())
    if attempt.record.login == login and (not is_partly_started or record.submitter == submitter()):
        return
    raise StateError(
        f"Run '{record.run}' was started in part by {attempt.record.login} from {record.submitter}.",
        hint=f"Continue it there, or end it: tpuctl cancel {record.run}",
    )


def check_same(run: StoredRun, plan: SubmitPlan) -> None:
    """Raise ConflictError for a run of this name that was not submitted with what is planned."""
    try:
        other = StoredRun(run.bucket, run.name).record
    except NotFoundError:
        return
    differing = [
        field
        for field in Run.__struct_fields__
        if field not in OF_ONE_SUBMIT and getattr(other, field) != getattr(plan.run, field)
    ]
    if differing:
        raise ConflictError(
            f"There is a run '{run.name}' already, with another {' and '.join(map(_word, differing))}.",
            hint="Choose another --name.",
        )


def _word(field: str) -> str:
    return {"bundle_sha256": "code"}.get(field, field.replace("_", " "))


def _next_attempt(run: StoredRun, plan: SubmitPlan) -> Attempt:
    """Return the attempt to make: the next one after one that has ended before it had started."""
    verdict = run.verdict()
    if verdict is None or not verdict.is_unstarted:
        return plan.attempt
    run.keep_verdict(verdict)
    return msgspec.structs.replace(plan.attempt, attempt=verdict.attempt + 1)


def _attempt(run: StoredRun, plan: SubmitPlan, login: str) -> StoredAttempt:
    """Return the planned attempt, which is created unless another process has done so, or a later one."""
    if max(run.attempt_numbers(), default=0) >= plan.attempt.attempt:
        return run.last_readable_attempt()
    if plan.takes_turn:
        take_turn(run, plan)
    try:
        return run.create_attempt(signed(plan.attempt, login=login))
    except ConflictError:
        return run.last_readable_attempt()
