"""Decides what a submission does about the runs that its TPU is busy with."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import click

from tpuctl import clock
from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session
from tpuctl.errors import DeclinedError
from tpuctl.flows.runs.control import occupants as flow
from tpuctl.flows.runs.submission.plan import SubmitPlan

QUEUE, REPLACE = "queue", "replace"
queue_option = click.option(
    "--queue", "policy", flag_value=QUEUE, help="Wait in line for a TPU that is busy; no server is needed."
)
replace_option = click.option(
    "--replace", "policy", flag_value=REPLACE,
    help="Stop the run that the TPU is busy with, as 'tpuctl cancel' does, and start then.",
)  # fmt: skip


def on_free_node(
    session: Session, plan: SubmitPlan, policy: str | None, script: Path, command: str = "submit"
) -> SubmitPlan:
    """Return the plan for a free node, or to wait in line; stops what runs if that is the policy.

    `command` is that of tpuctl, as hints name it.
    Raises StateError for a busy node without a policy, DeclinedError for a no.
    """
    cloud = session.cloud
    busy = flow.occupants(cloud.bucket, session.witnesses, plan.node, session.warn)
    if policy == QUEUE:
        if busy:
            output.note(f"{plan.node.name} is busy: {len(busy)} ahead, the next is '{busy[0].run}'.")
        return replace(plan, waits=True)
    if not busy:
        return replace(plan, takes_turn=True)
    if policy == REPLACE:
        flow.check_replaceable(cloud.bucket, plan.node, busy, plan.run.run)
        names = ", ".join(f"'{occupant.run}' of {occupant.submitter}" for occupant in busy)
        output.note(f"Stopping {names}.")
        with show_steps() as report:
            flow.stop_all(
                cloud.bucket, cloud.provider, cloud.ssh, session.witnesses, busy, session.owner, report
            )
        return replace(plan, takes_turn=True)
    ages = [f"{clock.age(occupant.since, session.now)} ago" for occupant in busy]
    error = flow.busy_error(plan.node, busy, ages, command, shlex.quote(str(script)))
    if not sys.stdin.isatty():
        raise error
    output.note(error.message)
    if not printing.confirm("Wait in line for it (--queue)?"):
        raise DeclinedError("Declined: nothing was started.", hint=error.hint)
    return replace(plan, waits=True)
