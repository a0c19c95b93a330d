"""Starts a run that is planned, and passes on what is to be said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from tpuctl.client.context import Call, Context
from tpuctl.client.records import Progress
from tpuctl.client.runs import busy, submission
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.submission.plan import SubmitPlan


def start(context: Context, plan: SubmitPlan, policy: busy.Policy, typed: Sequence[str], call: Call) -> str:
    """Start a run once its node is free, and return its name.

    `typed` are the words of the command that does the same, for hints.
    """

    def opened() -> AbstractContextManager[Report]:
        return nullcontext(call.line)

    tell(context, call, *plan.notes)
    plan = busy.on_free_node(context, plan, policy, typed, call.line, opened)
    plan = submission.admit(context, plan, call.line)
    call.line(f"starting {plan.run.run} on {plan.node.name}")
    started = submission.start(context, plan, call.line, counted(call))
    tell(context, call, *started.notes)
    return started.run.run


def counted(call: Call) -> Callable[[str, int, int], None]:
    """Return what reports how much of the code is packed or stored."""

    def count(text: str, done: int, total: int) -> None:
        call.report(Progress(text, done, total or None))

    return count


def tell(context: Context, call: Call, *notes: str) -> None:
    """Pass sentences on: a warning to who takes warnings, another one as progress."""
    for note in notes:
        if note.startswith("Warning: "):
            context.warn(note.removeprefix("Warning: "))
        else:
            call.line(note)
