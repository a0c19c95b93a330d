"""Starts a run again for who waits for its end: repeats a watcher's step until it goes on."""

from __future__ import annotations

import math

from tpuctl import polling
from tpuctl.errors import DeadlineError, InterruptedByUser, NotFoundError, TpuctlError
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.events import BUSY, WAITS, Event
from tpuctl.flows.runs.recovery.step import step
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import Sleep


def await_restart(
    run: StoredRun, tools: Tools, sleep: Sleep = polling.sleep, *, patience: float = math.inf
) -> None:
    """Return once a run goes on, was started again, or has ended for good; reports each event once.

    Waits for capacity, for services that do not answer, and for another watcher. Raises what another step
    would only repeat, such as UsageError for a value that nobody here knows; DeadlineError after `patience`
    seconds of pauses.
    """
    pauses, shown, waited = watch.PAUSES.pauses(), "", 0.0
    while True:
        event = _step(run, tools)
        if event.line != shown and (shown or event.action in (BUSY, WAITS)):
            tools.report(event.line)
        shown = event.line
        if event.action not in (BUSY, WAITS):
            return
        pause = watch.INTERVAL if event.action == BUSY else next(pauses)
        if waited + pause > patience:
            raise DeadlineError(event.detail)
        sleep(pause)
        waited += pause


def _step(run: StoredRun, tools: Tools) -> Event:
    try:
        return step(run, tools)
    except (*watch.FINAL, NotFoundError, InterruptedByUser):
        raise
    except TpuctlError as error:
        return Event(run.name, max(run.attempt_numbers(), default=0), WAITS, error.message)
