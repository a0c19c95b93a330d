"""The command cancel.

- The command wait.
"""

from __future__ import annotations

from math import inf

import click

from tpuctl.bucket_objects import BadObjectError
from tpuctl.cli import output, printing
from tpuctl.cli.nodes.table import show_inventory
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, reaching_options, with_session, yes_option
from tpuctl.cli.value_types import DURATION
from tpuctl.client.nodes import changes
from tpuctl.client.runs import steps
from tpuctl.errors import BucketMissingError, DeadlineError, NotFoundError, TpuctlError, joined_hints
from tpuctl.flows.nodes.lookup import Inventory, is_deletable
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.control import cancel as flow
from tpuctl.flows.runs.control.cancel import Cancellation, CancelPlan
from tpuctl.flows.runs.control.occupants import HostCancelPlan
from tpuctl.flows.runs.recovery import step as recovery
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import retry
from tpuctl.runs import NAME


@click.command()
@click.argument("run")
@click.option(
    "--grace",
    type=DURATION,
    default="30s",
    metavar="DURATION",
    help="Time to save between SIGTERM and SIGKILL; default: 30s.",
)
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Kill the program that runs the script, for one that hangs; another on the host ends the script.",
)
@yes_option
@dry_run_option
@with_session
@reaching_options
def cancel(session: Session, run: str, grace: int, is_forced: bool, yes: bool, dry_run: bool) -> None:
    """Stop a run on every host, and wait until it has ended. Its TPU stays.

    The script gets SIGTERM, time to save, and SIGKILL. Hosts are asked over SSH, and by an object in the
    bucket, which they read every 10 seconds.

    \b
    Example:
      tpuctl cancel digits-20260131-120000 --grace 2m
    """
    plan = steps.plan_cancel(session, run, grace, is_forced=is_forced, is_rehearsal=dry_run)
    if dry_run:
        output.requests(steps.cancel_requests(session, plan), as_json=session.as_json)
        return
    if isinstance(plan, HostCancelPlan):
        bucket = session.cloud.bucket.name
        confirm(f"Stop run '{run}', of which gs://{bucket} has no record, on {plan.place}?", yes=yes)
    elif not plan.is_over:
        confirm(_question(plan), yes=yes)
    with show_steps() as report:
        cancellation = steps.cancel(session, plan, report)
    if isinstance(plan, HostCancelPlan):
        _show_hosts(session, plan)
    else:
        _show(session, plan, cancellation)


def _show_hosts(session: Session, plan: HostCancelPlan) -> None:
    """Show that a run was stopped whose record the bucket lacks or does not tell."""
    run = plan.request.run
    if session.as_json:
        output.json({"run": run, "outcome": "", "nodes": list(plan.places)})
        return
    reason = plan.reason or f"gs://{session.cloud.bucket.name} has no record of it."
    output.note(f"Run '{run}' was stopped on {plan.place}. {reason}")
    for node in plan.places:
        output.note(f"{node} stays, until 'tpuctl down {node}'.")


def _goes(plan: CancelPlan) -> bool:
    """Whether the TPU was made for the run, and is deleted with it."""
    assert plan.attempt is not None
    record = plan.attempt.record
    return recovery.is_made_for(plan.run.name, record.tpu.name, record.attempt)


def _question(plan: CancelPlan) -> str:
    if not plan.attempt:
        return f"Stop run '{plan.run.name}', which was not started?"
    if plan.verdict:
        return f"Stop run '{plan.run.name}', which is to be started again ({plan.verdict.outcome})?"
    record = plan.attempt.record
    count = len(record.workers)
    return f"Stop run '{plan.run.name}' on {record.tpu.name} ({count} worker{'s' * (count > 1)})?"


def _show(session: Session, plan: CancelPlan, cancellation: Cancellation) -> None:
    verdict = cancellation.verdict
    if session.as_json:
        workers = [
            {"worker": status.worker, "exit_code": status.exit_code, "signal": status.signal}
            for status in cancellation.statuses
            if status
        ]
        output.json(
            {
                "run": plan.run.name,
                "outcome": verdict.outcome,
                "stopped_by": verdict.stopped_by,
                "evidence": verdict.evidence,
                "workers": workers,
            }
        )
        return
    if plan.is_over:
        outcome = "" if verdict.stopped_by else f"{verdict.outcome}, "
        output.note(f"Run '{verdict.run}' had ended before: {outcome}{verdict.evidence}.")
    elif verdict.stopped_by:
        output.note(f"Run '{verdict.run}' was {verdict.evidence}.")
    else:
        output.note(f"Run '{verdict.run}' ended by itself meanwhile: {verdict.outcome}, {verdict.evidence}.")
    if plan.attempt and not plan.verdict and not _goes(plan):
        tpu = plan.attempt.record.tpu
        is_named = is_deletable(session.cloud.provider, tpu.id)
        end = f", until 'tpuctl down {tpu.name}'" if is_named else ": Terraform keeps it"
        output.note(f"{tpu.name} stays{end}.")


@click.command()
@click.argument("name")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Stop waiting after so long, such as 6h (exit code 9); the run, or the request for the TPU, stays.",
)
@click.option("--tpu", "is_tpu", is_flag=True, help="NAME is a TPU, also where a run has this name.")
@printing.without_reader()  # its exit code is the run's
@with_session
@reaching_options
def wait(session: Session, name: str, timeout: int | None, is_tpu: bool) -> None:
    """Wait until a TPU is READY, as after 'tpuctl up --detach', or until a run has ended.

    A TPU is ready when its hosts answer over SSH. The exit code of a run is that of 'tpuctl logs -f'.

    \b
    Example:
      tpuctl wait n1 --timeout 6h
      tpuctl wait digits-20260131-120000
    """
    seconds = inf if timeout is None else timeout
    missing = None
    try:
        run = None if is_tpu else _run(session, name, seconds)
    except BucketMissingError as error:
        run, missing = None, error
    if run:
        _wait_for_run(session, run, seconds)
        return
    try:
        _wait_for_node(session, name, seconds)
    except NotFoundError as error:
        if missing:
            error.message += f" Whether there is such a run is unknown: {missing.message}"
        raise


def _run(session: Session, name: str, seconds: float) -> StoredRun | None:
    """Return the run of a name, None without one; a bucket that is away is asked again within the time.

    Raises the error of one that refuses: a TPU may have the name of a run that trains on it.
    """
    if not NAME.fullmatch(name):
        return None
    run = StoredRun(session.cloud.bucket, name, session.warn)
    try:
        retry(lambda: run.record, on=DeadlineError, timeout=seconds)
    except BadObjectError:
        return run
    except BucketMissingError:
        raise
    except NotFoundError:
        return None
    except TpuctlError as error:
        error.hint = joined_hints(error.hint, f"Wait for the TPU of this name: tpuctl wait {name} --tpu")
        raise
    return run


def _wait_for_run(session: Session, run: StoredRun, seconds: float) -> None:
    with show_steps() as report:
        verdict = steps.await_end(session, run, seconds, lambda text: report(f"{run.name}: {text}"))
    error = flow.failure_of(verdict)
    if error:
        raise error
    if session.as_json:
        output.json(flow.summary(verdict))
        return
    output.note(outcome.success_of(verdict))
    output.hint(outcome.next_command(verdict))


def _wait_for_node(session: Session, name: str, seconds: float) -> None:
    with show_steps() as report:
        allocation = changes.await_ready(session, name, session.from_flag("zone"), seconds, report)
    show_inventory(session, Inventory((allocation,)))
    output.hint("tpuctl submit SCRIPT")
