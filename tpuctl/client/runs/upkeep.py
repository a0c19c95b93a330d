"""Tags, notes and the removal of runs."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.client.context import Context
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep import collection, removal
from tpuctl.parallel import fanout, values

WIDTH = 8
"""Runs looked at at once."""


def noting(context: Context, run: StoredRun, text: str) -> collection.Change:
    """Return the change that adds a note of this user's."""
    return collection.noting(text, context.owner, collection.now(run))


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


def remove(context: Context, plans: Sequence[removal.RemovalPlan], report: Report) -> dict[str, int]:
    """Remove runs, and return how many objects each had."""
    return {plan.run.name: removal.remove(plan, context.owner, report) for plan in plans}
