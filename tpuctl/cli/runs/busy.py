"""Decides what a submission does about the runs that its TPU is busy with."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.runs import busy
from tpuctl.client.runs.busy import QUEUE, REPLACE, BusyError, Policy
from tpuctl.errors import DeclinedError, UsageError
from tpuctl.flows.runs.submission.plan import SubmitPlan

Command = TypeVar("Command", bound=Callable[..., object])

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


def policy_options(command: Command) -> Command:
    """Give a command --queue, --queue-timeout and --replace, and pass it all as one Policy, `policy`."""

    @functools.wraps(command)
    def wrapper(*arguments: object, policy: str | None, queue_timeout: int, **parameters: object) -> object:
        if queue_timeout and policy != QUEUE:
            raise UsageError("--queue-timeout is for --queue.", hint="Add --queue.")
        return command(*arguments, policy=Policy(policy, queue_timeout), **parameters)

    return queue_option(queue_timeout_option(replace_option(wrapper)))  # type: ignore[return-value]  # stands for it


def on_free_node(session: Session, plan: SubmitPlan, policy: Policy, typed: Sequence[str]) -> SubmitPlan:
    """Return the plan for a free node, or to wait in line; a user at a terminal is asked about that.

    `typed` are the words of the command. Raises BusyError without a policy, DeclinedError for a no.
    """
    try:
        return busy.on_free_node(session.context, plan, policy, typed, output.note, show_steps)
    except BusyError as error:
        if plan.node.slices or not sys.stdin.isatty():
            raise
        output.note(error.message)
        if not printing.confirm("Wait in line for it (--queue)?"):
            raise DeclinedError("Declined: nothing was started.", hint=error.hint) from None
        return busy.in_line(plan)
