"""Decides what a submission does about the runs that its TPU is busy with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from tpuctl import clock
from tpuctl.client.context import Context
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.control import occupants as flow
from tpuctl.flows.runs.submission.plan import SubmitPlan

QUEUE, REPLACE = "queue", "replace"
Steps = Callable[[], AbstractContextManager[Report]]
"""Opens what shows the steps of a longer wait."""


class BusyError(StateError):
    """The TPU is busy with another run, and nobody said what to do about that."""


@dataclass(frozen=True)
class Policy:
    """What a submission does about a TPU that is busy."""

    name: str | None = None
    """QUEUE, REPLACE, or None to refuse."""
    queue_timeout: int = 0
    """Seconds for which it waits in line; 0 for no limit."""


def on_free_node(
    context: Context, plan: SubmitPlan, policy: Policy, typed: Sequence[str], say: Report, steps: Steps
) -> SubmitPlan:
    """Return the plan for a free node, or to wait in line; stops what runs if that is the policy.

    `typed` are the words of the command, for hints. Raises BusyError without a policy.
    """
    bucket = context.cloud.bucket
    busy = [
        occupant
        for occupant in flow.occupants(bucket, context.witnesses, plan.node, context.warn)
        if occupant.run != plan.run.run  # the same `run` at the same time; a `submit` is refused by its name
    ]
    if policy.name == QUEUE:
        if plan.node.slices:
            raise UsageError(
                f"'{plan.node.name}' has {len(plan.node.slices)} slices, each with a line of its own: no run"
                " waits in several.",
                hint=f"Wait first: tpuctl wait {busy[0].run}" if busy else "It is free: leave out --queue.",
            )
        if busy:
            say(f"{plan.node.name} is busy: {len(busy)} ahead, the next is '{busy[0].run}'.")
        return in_line(plan, policy.queue_timeout)
    if any(occupant.is_ending for occupant in busy):
        with steps() as report:
            busy = flow.await_endings(bucket, plan.node, busy, report)
    if not busy:
        return replace(plan, takes_turn=True)
    if policy.name == REPLACE:
        _stop_all(context, plan, busy, say, steps)
        return replace(plan, takes_turn=True)
    now = bucket.now()
    ages = [f"{clock.age(occupant.since, now)} ago" for occupant in busy]
    error = flow.busy_error(plan.node, busy, ages, typed)
    raise BusyError(error.message, hint=error.hint, **error.facts)


def in_line(plan: SubmitPlan, timeout: float = 0.0) -> SubmitPlan:
    """Return the plan of a run that waits in the line of its node."""
    return replace(plan, launch=replace(plan.launch, waits=True, line_timeout=timeout))


def _stop_all(
    context: Context, plan: SubmitPlan, busy: list[flow.Occupant], say: Report, steps: Steps
) -> None:
    cloud = context.cloud
    flow.check_replaceable(cloud.bucket, plan.node, busy, plan.run.run)
    names = ", ".join(f"'{occupant.run}' of {occupant.submitter}" for occupant in busy)
    say(f"Stopping {names}.")
    with steps() as report:
        flow.stop_all(
            cloud.bucket, cloud.provider, cloud.ssh, context.witnesses, plan.node, busy, context.owner,
            report,
        )  # fmt: skip
