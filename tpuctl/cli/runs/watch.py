"""The command watch."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from tpuctl import clock
from tpuctl.accelerators import accelerator
from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.runs.submission_options import value_options
from tpuctl.cli.session import (
    Session,
    confirm,
    dry_run_option,
    reaching_options,
    with_session,
    yes_option,
)
from tpuctl.client.runs import steps
from tpuctl.errors import InterruptedByUser, TpuctlError
from tpuctl.flows.progress import Report
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.recovery import drill
from tpuctl.flows.runs.recovery.lease import WatchEvent
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.recovery.watch import interrupted, is_own, open_runs
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.environment import variables_of
from tpuctl.flows.runs.whole import await_restart
from tpuctl.runs import Verdict

DELETION_PATIENCE = 120.0
"""Seconds of pauses for what keeps a machine from being deleted, once its run has ended."""


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "everything", is_flag=True, help="Watch all of your runs, also those still to come.")
@click.option("--once", is_flag=True, help="Take one step of each run, for cron or a scheduled job.")
@value_options(
    "Value of a variable that neither the bucket nor this machine has; repeatable.",
    "Such a value from this shell or a file: never on a command line.",
)
@yes_option
@dry_run_option
@with_session
@reaching_options
def watch(
    session: Session, runs: tuple[str, ...], everything: bool, once: bool, environment: tuple[str, ...],
    env_files: tuple[Path, ...], secrets: tuple[str, ...], yes: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Start runs again that were preempted or lost, until each has ended; their policy is that of 'submit'.

    Without RUN, your only one that has not ended for good. One that was submitted on another machine is shown
    and asked for first: anybody who may write to the bucket may have written its record.

    Any number of watchers on any machines make one restart; if one is killed, another goes on. The exit code
    of a single run is that of 'tpuctl wait'.

    \b
    Example:
      tpuctl watch digits-20260131-120000
      tpuctl watch --all --once
    """
    values = variables_of(environment, env_files, secrets, (), os.environ)
    stored = steps.to_watch(session, runs, everything=everything)
    if dry_run:
        _rehearse(session, stored, values)
        return
    for run in steps.unknown_runs(session, stored):
        _ask(session, run, yes=yes)
    with show_steps() as report:
        own = tools(session, report, values)
        for event in steps.watched(session, stored, own, once=once):
            _show(session, event)
    if not once:
        _end(stored)


def _ask(session: Session, stored: StoredRun, *, yes: bool) -> None:
    """Show what would be made for a run that was submitted elsewhere, and ask whether it may be."""
    run, named = stored.record, stored.last_attempt().record.tpu
    machine = run.machine
    assert machine is not None
    price = session.prices.price(accelerator(machine.accelerator), machine.zones[0], spot=machine.spot)
    chosen = {
        "service account": machine.service_account or "the project's default",
        "scopes": ", ".join(machine.scopes),
        "disks": ", ".join(disk.source for disk in machine.data_disks),
        "metadata": ", ".join(machine.metadata),
        "startup script": machine.startup_script,
    }
    output.facts(
        {
            "run": run.run,
            "submitted": f"{run.created} by {run.submitter}, says its record",
            "starts": shlex.join(run.command),
            "code": run.bundle_sha256,
            "on": f"{named.name} in {named.zone}, or a new {machine.accelerator}"
            f" ({'spot' if machine.spot else 'on demand'}) in {', '.join(machine.zones)}",
            "price per hour": str(price),
            **{name: value for name, value in chosen.items() if value},
        },
        err=True,
    )
    confirm("It was not submitted from here. Start it again whenever it is lost?", yes=yes)
    steps.confirm_restarts(session, stored)


def _rehearse(session: Session, stored: list[StoredRun], values: dict[str, str]) -> None:
    """Show what a step would send for runs, or for all of this user's."""
    with show_steps() as report:
        watcher_tools = tools(session, report, values)
        chosen = stored or open_runs(session.cloud.bucket, session.owner)
        unknown = steps.unknown_runs(session, chosen)
        for run in unknown:
            session.warn(f"Run '{run.name}' was submitted elsewhere: 'tpuctl watch {run.name}' asks first.")
        known = [run for run in chosen if run not in unknown]
        shown = [request for run in known for request in drill.requests(run, watcher_tools)]
    output.requests(shown, as_json=session.as_json)


def starts_again(session: Session, stored: StoredRun, verdict: Verdict) -> bool:
    """Start a run of this user's again, if its policy allows that, and return whether it is one's own."""
    if not is_own(stored, session.owner):
        return False
    if steps.unknown_runs(session, [stored]):
        session.warn(
            f"Run '{stored.name}' was submitted elsewhere: it is not started again from here, unless by"
            f" 'tpuctl watch {stored.name}'."
        )
        return False
    output.note(f"Run '{stored.name}' {verdict.outcome}: {verdict.evidence}. It is started again.")
    try:
        with show_steps() as report:
            await_restart(stored, tools(session, report))
    except (KeyboardInterrupt, InterruptedByUser) as interrupt:
        raise interrupted([stored], interrupt) from interrupt
    return True


def delete_what_was_made(session: Session, stored: StoredRun) -> None:
    """Delete the machine that was made for a run that this command has started again, and that has ended.

    Where that cannot be done soon, or is interrupted, it is said: how the run ended counts.
    """
    left, hint = f"The TPU that was made for run '{stored.name}' may bill", f"tpuctl watch {stored.name}"
    try:
        with show_steps() as report:
            await_restart(stored, tools(session, report), patience=DELETION_PATIENCE)
    except (KeyboardInterrupt, InterruptedByUser) as interrupt:
        raise InterruptedByUser(f"Interrupted. {left}.", hint=f"Delete it: {hint}") from interrupt
    except TpuctlError as error:
        session.warn(f"{left}: {error.message} Delete it: {hint}")


def tools(session: Session, report: Report, values: dict[str, str] | None = None) -> Tools:
    """Return what a watcher of this session works with."""
    return steps.tools(session, report, values)


def _show(session: Session, event: WatchEvent) -> None:
    at = clock.iso(session.cloud.bucket.now())
    if session.as_json:
        output.json_line({"at": at, **vars(event)})
    else:
        printing.write_at_once(f"{at}  {event.line}")


def _end(stored: list[StoredRun]) -> None:
    """Raise the error of the first run that did not succeed."""
    verdicts = [verdict for run in stored if (verdict := run.verdict())]
    for verdict in verdicts:
        error = outcome.error_of(verdict)
        if error:
            raise error
    if verdicts:
        output.hint(outcome.next_command(verdicts[0]))
