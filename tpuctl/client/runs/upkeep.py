"""Tags, notes and the removal of runs."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.client.context import Context
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep import collection, removal
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import fanout, values
from tpuctl.upkeep import Notes, TagChange

WIDTH = 8
"""Runs looked at at once."""


def tagging(words: Sequence[str]) -> collection.Change:
    """Return the change that `KEY`, `KEY=VALUE` and `KEY-` mean."""
    return collection.tagging(TagChange.parse(words))


def noting(context: Context, run: StoredRun, text: str) -> collection.Change:
    """Return the change that adds a note of this user's."""
    return collection.noting(text, context.owner, collection.now(run))


def change_requests(run: StoredRun, change: collection.Change) -> list[HttpRequest]:
    """Return what `update` would send."""
    return collection.requests(run, change)


def update(run: StoredRun, change: collection.Change) -> Notes:
    """Change tags and notes, and return them as they are now."""
    return collection.update(run, change)


def plan_removals(
    context: Context, runs: Sequence[StoredRun], *, is_rehearsal: bool = False
) -> list[removal.RemovalPlan]:
    """Return what removes runs, and warn of what was made for one and bills on.

    Raises the error of the first that runs, or may.
    """

    def plan(run: StoredRun) -> removal.RemovalPlan:
        return removal.plan_removal(
            run, context.witnesses, lambda tpu: context.prices.of(tpu), is_rehearsal=is_rehearsal
        )

    plans = values(fanout(plan, runs, width=WIDTH))
    for name, reason in removal.reasons_to_keep(context.witnesses, plans).items():
        context.warn(f"Run '{name}': {reason}")
    return plans


def read_all(plans: Sequence[removal.RemovalPlan]) -> None:
    """Read what plans can tell before their runs are removed."""
    removal.read_all(plans)


def removal_requests(context: Context, plans: Sequence[removal.RemovalPlan]) -> list[HttpRequest]:
    """Return what `remove` would send."""
    return removal.requests(context.cloud.bucket, plans)


def remove(context: Context, plans: Sequence[removal.RemovalPlan], report: Report) -> dict[str, int]:
    """Remove runs, and return how many objects each had."""
    return {plan.run.name: removal.remove(plan, context.owner, report) for plan in plans}
