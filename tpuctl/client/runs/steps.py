"""What calls and commands do with runs: each a flow with this client's clients."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.client.context import Context
from tpuctl.config import subnetworks
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.progress import Report
from tpuctl.flows.remote.targets import Hosts, WorkerSet, find_hosts
from tpuctl.flows.runs.control import cancel as cancel_flow
from tpuctl.flows.runs.control import cancel as wait_flow
from tpuctl.flows.runs.control import occupants
from tpuctl.flows.runs.lookup import find_run
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery.authority import Limits, is_allowed
from tpuctl.flows.runs.recovery.lease import WatchEvent
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values
from tpuctl.flows.runs.submission.launch import entry
from tpuctl.nodes import HttpRequest
from tpuctl.runs import Verdict, check_name, submitter

if TYPE_CHECKING:
    from tpuctl.flows.costs.bills import BillReport
    from tpuctl.flows.costs.report import CostReport
    from tpuctl.flows.progress import Progress
    from tpuctl.flows.runs.description import RunDescription
    from tpuctl.flows.runs.local_copy import Selection as PullSelection
    from tpuctl.flows.runs.pull import PullResult
    from tpuctl.flows.runs.summaries import Page, Selection


def find(context: Context, name: str | None) -> StoredRun:
    """Return the run of this name, or one's own that was submitted last."""
    return find_run(context.cloud.bucket, name, context.warn)


def named(context: Context, name: str) -> StoredRun:
    """Return the run of a name, without asking whether it is there."""
    return StoredRun(context.cloud.bucket, check_name(name), context.warn)


def attempt_of(run: StoredRun, number: int | None) -> StoredAttempt:
    """Return an attempt of a run, by default the last that can be read; raises UsageError."""
    if number is None:
        return run.last_readable_attempt()
    numbers = run.attempt_numbers()
    if number not in numbers:
        raise UsageError(
            f"Run '{run.name}' has no attempt {number}.",
            hint=f"It has: {', '.join(map(str, numbers)) or 'none'}.",
        )
    return run.attempt(number)


def hosts_of(context: Context, name: str, workers: WorkerSet) -> tuple[Hosts, list[str]]:
    """Return workers of the node of a run's last attempt, and what starts a command in its environment there.

    All workers are those that run the script. The node is one of this project, whatever the record says.
    Raises StateError where the node is gone, or another user on the hosts has the run's files.
    """
    attempt = find(context, name).last_readable_attempt().record
    tpu, login, ssh = attempt.tpu, attempt.login, context.cloud.ssh
    if login and login != ssh.user:
        raise StateError(
            f"User '{login}' has the files of run '{name}' on the hosts of {tpu.name}, not '{ssh.user}'.",
            hint=f"Log in as that user: TPUCTL_SSH_USER={shlex.quote(login)}",
        )
    chosen = workers if workers.ranges else WorkerSet(tuple((each, each) for each in attempt.workers))
    gone = StateError(
        f"'{tpu.name}', on which attempt {attempt.attempt} of run '{name}' was, is gone, with its files.",
        hint=f"What it left in the bucket: tpuctl pull {name}",
    )
    try:
        hosts = find_hosts(context.cloud.provider, tpu.name, chosen, context.owner, tpu.zone)
    except NotFoundError as error:
        if "worker" in error.facts:
            raise
        raise gone from error
    if hosts.node.id.uids != tpu.id.uids:
        raise gone
    return hosts, entry(name, attempt.attempt)


def page(context: Context, selection: Selection) -> Page:
    """Return the newest runs of a selection."""
    from tpuctl.flows.runs.summaries import take_page

    return take_page(
        context.cloud.bucket,
        context.witnesses,
        context.warn,
        selection,
        lambda tpu: context.prices.of(tpu),
    )


def describe(context: Context, run: StoredRun) -> RunDescription:
    """Return all that is known of a run, after settling how it ended if that can be decided now."""
    from tpuctl.flows.runs.description import RunDescription

    return RunDescription(run, context.witnesses, lambda tpu: context.prices.of(tpu))


def await_end(context: Context, run: StoredRun, seconds: float, report: Report) -> Verdict:
    """Return how a run ended once it has."""
    return wait_flow.await_end(run, context.witnesses, seconds, report)


def plan_cancel(
    context: Context, name: str, grace: float, *, is_forced: bool = False, is_rehearsal: bool = False
) -> cancel_flow.CancelPlan | occupants.HostCancelPlan:
    """Return the request to stop a run, and how the run is now, or where it lives without a record."""
    return occupants.plan_any(
        context.cloud.bucket, context.witnesses, name, context.owner, int(grace), is_forced=is_forced,
        is_rehearsal=is_rehearsal,
    )  # fmt: skip


def cancel_requests(
    context: Context, plan: cancel_flow.CancelPlan | occupants.HostCancelPlan
) -> list[HttpRequest]:
    """Return what `cancel` would send."""
    if isinstance(plan, occupants.HostCancelPlan):
        return occupants.requests(plan)
    return cancel_flow.requests(context.cloud.bucket, plan)


def cancel(
    context: Context, plan: cancel_flow.CancelPlan | occupants.HostCancelPlan, report: Report
) -> cancel_flow.Cancellation:
    """Stop a run on every host, and return once it has ended and is not started again."""
    cloud = context.cloud
    result = occupants.cancel_any(cloud.provider, cloud.ssh, context.witnesses, plan, report)
    if isinstance(plan, occupants.HostCancelPlan):
        return result
    if plan.attempt and plan.run.restarts:
        from tpuctl.flows.runs.recovery import step  # it can start runs, too

        verdict = step.end(plan.run, tools(context, report)) or result.verdict
        result = result._replace(verdict=verdict)
    return result


def pull(
    context: Context, run: StoredRun, folder: Path, report: Report, selection: PullSelection,
    progress: Progress, *, follow: bool = False,
) -> tuple[PullResult, RunState]:  # fmt: skip
    """Fetch a run into a folder, and return the copy with how the run is; `follow` until it has ended.

    One whose end no record can tell any more has ended as far as its files are concerned.
    """
    from tpuctl.flows.runs import pull as flow

    now = settle(run, context.witnesses)
    if not follow:
        return flow.pull(run, folder, report, selection, progress), now

    def has_ended() -> bool:
        nonlocal now
        now = settle(run, context.witnesses)
        return bool(now.error) or (now.verdict is not None and not now.verdict.restarts)

    return flow.follow(run, folder, report, has_ended, selection, progress), now


def to_watch(context: Context, names: Sequence[str], *, everything: bool) -> list[StoredRun]:
    """Return the runs of these names, else this user's only one that may be started again; none for all.

    Raises UsageError for names beside all, StateError for several runs, NotFoundError without one.
    """
    from tpuctl.flows.runs.recovery.watch import open_runs

    if names and everything:
        raise UsageError("Names and all of your runs exclude each other.", hint="Name runs, or take all.")
    if names or everything:
        return [named(context, name) for name in dict.fromkeys(names)]
    own = open_runs(context.cloud.bucket, context.owner)
    listed = [run.name for run in own]
    if len(own) > 1:
        raise StateError(
            f"You have {len(own)} runs to watch: {', '.join(listed)}.",
            hint="Name those to watch. All of them: tpuctl watch --all",
            runs=listed,
        )
    if not own:
        raise NotFoundError("You have no run that could be started again.", hint="'tpuctl runs' lists them.")
    return own


def watched(
    context: Context, runs: Sequence[StoredRun], tools: Tools, *, once: bool
) -> Generator[WatchEvent, None, None]:
    """Start runs again, or without any all of this user's, and yield each event that is new."""
    from tpuctl.flows.runs.recovery.watch import Watcher

    watcher = Watcher(tools)
    if runs:
        return watcher.events(runs, once=once)
    return watcher.all_events(context.owner, once=once)


def costs(context: Context, since: float) -> CostReport:
    """Return what was used in the last seconds."""
    from tpuctl.flows.costs.report import take_costs

    cloud = context.cloud
    start = cloud.bucket.now() - timedelta(seconds=since)
    return take_costs(
        cloud.bucket,
        cloud.provider,
        context.witnesses,
        lambda node: context.prices.of(node),
        start,
        context.warn,
    )


def bills(context: Context) -> BillReport:
    """Return what bills in the project now, also what tpuctl did not make."""
    from tpuctl.flows.costs.bills import Sources, take_bills

    cloud, config = context.cloud, context.config
    own = [name for name in (config.get("bucket"), config.get("data_bucket")) if name]
    return take_bills(
        Sources(
            cloud.provider,
            lambda node: context.prices.of(node),
            cloud.read_disks,
            cloud.read_addresses,
            cloud.bucket_names,
            list(dict.fromkeys(own)),
            cloud.bucket_usage,
        )
    )


def tools(context: Context, report: Report, values: Mapping[str, str] | None = None) -> Tools:
    """Return what a watcher works with."""
    cloud = context.cloud
    return Tools(
        bucket=cloud.bucket,
        data_bucket=cloud.data_bucket.name,
        provider=cloud.provider,
        ssh=cloud.ssh,
        witnesses=context.witnesses,
        price_of=lambda creation: context.prices.of_creation(creation),
        holder=f"{submitter()} ({os.getpid()})",
        report=report,
        values=values or {},
        limits=_limits(context),
        node_price=lambda item: context.prices.of(item),
        recorded_price=context.prices.recorded,
    )


def _limits(context: Context) -> Limits | None:
    """Return what may be made for runs that were submitted elsewhere; None where nothing is configured."""
    config = context.config
    types = config.get("watch_types")
    if types is None:
        return None
    price = config.get("watch_max_price")
    return Limits(
        tuple(types.split(",")),
        tuple((config.get("watch_zones") or config.require("zone")).split(",")),
        config.require("service_account"),
        config.get("network") or "default",
        config.get("subnetwork") or "",
        subnetworks.of_config(config),
        config.require_bool("external_ips"),
        Decimal(price) if price else None,
    )


def unknown_runs(context: Context, runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Return those that may be started again, but were submitted elsewhere, and that no limits allow."""
    limits, bucket = _limits(context), context.cloud.bucket.name
    return [run for run in runs if _may_go_on(run) and not is_allowed(bucket, run.record, limits)]


def _may_go_on(run: StoredRun) -> bool:
    """Whether a run may be started again: its values are forgotten here once it has ended for good."""
    verdict = run.verdict() if run.restarts else None
    return run.restarts and (verdict is None or verdict.restarts)


def confirm_restarts(context: Context, run: StoredRun) -> None:
    """Keep here that a run which was submitted elsewhere may be started again as its record is now."""
    launch_values.confirm(context.cloud.bucket.name, run.record, run.last_attempt().record.tpu)
