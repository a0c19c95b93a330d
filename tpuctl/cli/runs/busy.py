"""Decides what a submission does about the runs that its TPU is busy with."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import click

from tpuctl import clock
from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session
from tpuctl.cli.value_types import DURATION
from tpuctl.errors import DeclinedError, UsageError
from tpuctl.flows.runs.control import occupants as flow
from tpuctl.flows.runs.submission.plan import SubmitPlan

Command = TypeVar("Command", bound=Callable[..., object])

QUEUE, REPLACE = "queue", "replace"
queue_option = click.option(
    "--queue", "policy", flag_value=QUEUE, help="Wait in line for a TPU that is busy; no server is needed."
)
replace_option = click.option(
    "--replace", "policy", flag_value=REPLACE,
    help="Stop the run that the TPU is busy with, as 'tpuctl cancel' does, and start then.",
)  # fmt: skip

queue_timeout_option = click.option(
    "--queue-timeout", type=DURATION, default=0, metavar="DURATION",
    help="Give up the place in line after so long, such as 6h: the run has failed then.",
)  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """What a submission does about a TPU that is busy."""

    name: str | None = None
    """QUEUE, REPLACE, or None to refuse, or ask at a terminal."""
    queue_timeout: int = 0
    """Seconds for which it waits in line; 0 for no limit."""


def policy_options(command: Command) -> Command:
    """Give a command --queue, --queue-timeout and --replace, and pass it all as one Policy, `policy`."""

    @functools.wraps(command)
    def wrapper(*arguments: object, policy: str | None, queue_timeout: int, **parameters: object) -> object:
        if queue_timeout and policy != QUEUE:
            raise UsageError("--queue-timeout is for --queue.", hint="Add --queue.")
        return command(*arguments, policy=Policy(policy, queue_timeout), **parameters)

    return queue_option(queue_timeout_option(replace_option(wrapper)))  # type: ignore[return-value]  # stands for it


def on_free_node(
    session: Session, plan: SubmitPlan, policy: Policy, script: Path, command: str = "submit"
) -> SubmitPlan:
    """Return the plan for a free node, or to wait in line; stops what runs if that is the policy.

    `command` is that of tpuctl, as hints name it.
    Raises StateError for a busy node without a policy, DeclinedError for a no.
    """
    cloud = session.cloud
    busy = [
        occupant
        for occupant in flow.occupants(cloud.bucket, session.witnesses, plan.node, session.warn)
        if occupant.run != plan.run.run  # the same `run` at the same time; a `submit` is refused by its name
    ]
    if policy.name == QUEUE:
        if busy:
            output.note(f"{plan.node.name} is busy: {len(busy)} ahead, the next is '{busy[0].run}'.")
        return replace(plan, waits=True, queue_timeout=policy.queue_timeout)
    if any(occupant.is_ending for occupant in busy):
        with show_steps() as report:
            busy = flow.await_endings(cloud.bucket, plan.node, busy, report)
    if not busy:
        return replace(plan, takes_turn=True)
    if policy.name == REPLACE:
        flow.check_replaceable(cloud.bucket, plan.node, busy, plan.run.run)
        names = ", ".join(f"'{occupant.run}' of {occupant.submitter}" for occupant in busy)
        output.note(f"Stopping {names}.")
        with show_steps() as report:
            flow.stop_all(
                cloud.bucket,
                cloud.provider,
                cloud.ssh,
                session.witnesses,
                plan.node,
                busy,
                session.owner,
                report,
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
