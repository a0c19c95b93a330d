"""Ends a run that was asked to stop while it was, or was to be, started again: what was made for it goes."""

from __future__ import annotations

from tpuctl import polling
from tpuctl.errors import DeadlineError, joined_hints
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.events import BUSY, ENDED_FOR_GOOD, Event
from tpuctl.flows.runs.recovery.machine import machine_name
from tpuctl.flows.runs.recovery.step import step
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import Backoff, Sleep, poll
from tpuctl.runs import Verdict

PATIENCE = 3.0 * leases.SECONDS
"""Seconds: a watcher that was killed holds its lease for a part of them."""
PAUSES = Backoff(first=0.5, longest=5.0)


def end(run: StoredRun, tools: Tools, sleep: Sleep = polling.sleep) -> Verdict | None:
    """Return how a run ended that was asked to stop, once nothing bills that was made for it.

    Raises DeadlineError where a watcher that starts it again does not let go, or a service does not answer.
    """
    reported, unanswered, last = set[str](), list[DeadlineError](), ""

    def look() -> Event | None:
        nonlocal last
        try:
            event = step(run, tools)
        except DeadlineError as error:
            unanswered.append(error)
            raise
        last = f"attempt {event.attempt} {event.action} ({event.detail})"
        if event.action == BUSY:
            last = "a watcher still starts it"
        if event.line not in reported:
            reported.add(event.line)
            tools.report(event.line)
        return event if event.action == ENDED_FOR_GOOD else None

    try:
        poll(look, awaiting="the end of its restart", timeout=PATIENCE, backoff=PAUSES, sleep=sleep)
    except DeadlineError as error:
        standing = "what was made for it may bill" if unanswered else last
        raise DeadlineError(
            f"Run '{run.name}' was asked to stop, but {standing}: {error.message}",
            hint=joined_hints(f"Ask again: tpuctl cancel {run.name}", "What bills: tpuctl ls"),
            **error.facts,
        ) from error
    return run.verdict()


def is_made_for(run: str, node: str, attempts: int) -> bool:
    """Return whether a node was made for a restart of a run, and is deleted with its end."""
    return node in {machine_name(run, number) for number in range(2, attempts + 1)}
