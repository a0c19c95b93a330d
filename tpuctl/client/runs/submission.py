"""Plans a run, and starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.client.context import Context
from tpuctl.errors import ConflictError
from tpuctl.flows.hosts.way_in import patient_ssh
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import access, buckets
from tpuctl.flows.runs.submission import submit as flow
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest, plan_submit, priced
from tpuctl.nodes import HttpRequest, Node

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.flows.runs.code.bundles import Report as ReportCode
    from tpuctl.flows.runs.record.repetition import RepeatRequest


def plan(
    context: Context, request: SubmitRequest, report: ReportCode | None = None, node: Node | None = None
) -> SubmitPlan:
    """Return the run that is ready to be started, on a node or on one that fits; sends reads only."""
    cloud = context.cloud
    planned = plan_submit(
        cloud.data_bucket, cloud.provider, context.owner, request, clock.now(), report, node
    )
    return _fitting(context, planned)


def plan_again(context: Context, stored: StoredRun, request: RepeatRequest) -> SubmitPlan:
    """Return a run that repeats another from its record."""
    from tpuctl.flows.runs.record.repetition import plan_repetition

    cloud = context.cloud
    planned = plan_repetition(stored, cloud.data_bucket, cloud.provider, context.owner, request, clock.now())
    return _fitting(context, planned)


def _fitting(context: Context, planned: SubmitPlan) -> SubmitPlan:
    """Return the plan as its buckets allow it, with what they do to it.

    Raises UsageError for a node in another region, and ConfigError for a bucket in which no run can work.
    """
    planned = buckets.usable(planned, context.cloud.bucket)
    if context.config.require_bool("cross_region"):
        return planned
    return buckets.near(planned, context.cloud.bucket, context.cloud.data_bucket)


def requests(context: Context, planned: SubmitPlan) -> list[HttpRequest]:
    """Return what `start` would send."""
    cloud = context.cloud
    keys = access.requests(cloud.provider, planned, cloud.ssh.login_key())
    return [*keys, *flow.requests(cloud.bucket, planned)]


def admit(context: Context, planned: SubmitPlan, say: Report) -> SubmitPlan:
    """Return the plan once every host lets our key log in."""
    cloud = context.cloud
    return access.admit(cloud.provider, cloud.ssh, planned, say)


def start(
    context: Context, planned: SubmitPlan, say: Report, report: ReportCode | None = None
) -> flow.Submission:
    """Start the run; where its name has a submission that was killed before all had started, go on."""
    cloud, planned = context.cloud, priced(planned, context.prices.recorded)
    try:
        return flow.submit(cloud.bucket, cloud.provider, _ssh(context, planned), planned, report)
    except ConflictError as error:
        from tpuctl.flows.runs.submission import continuation  # slow, and rarely needed

        stored = StoredRun(cloud.bucket, planned.run.run, context.warn)
        seconds = continuation.free_in(stored, context.witnesses) if planned.is_named else None
        if seconds:
            error.hint = (
                f"If its submission was killed, the same command goes on in {seconds:.0f} s. {error.hint}"
            )
        if seconds is None or seconds > 0:
            raise
    say(f"Run '{planned.run.run}' was submitted before, and not started on every worker: it is now.")
    return continuation.go_on(cloud.bucket, cloud.provider, _ssh(context, planned), planned, report)


def go_on(context: Context, planned: SubmitPlan, report: ReportCode | None = None) -> flow.Submission:
    """Start the run, or what a submission that was killed has not started of it."""
    from tpuctl.flows.runs.submission import continuation  # slow, and rarely needed

    cloud, planned = context.cloud, priced(planned, context.prices.recorded)
    return continuation.go_on(cloud.bucket, cloud.provider, _ssh(context, planned), planned, report)


def _ssh(context: Context, planned: SubmitPlan) -> Ssh:
    return patient_ssh(context.cloud.provider, context.cloud.ssh, planned.node)
