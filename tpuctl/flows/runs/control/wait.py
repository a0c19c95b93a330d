"""Waits for the end of a run; changes nothing."""

from __future__ import annotations

import time

from tpuctl import polling
from tpuctl.errors import DeadlineError, InterruptedByUser, TpuctlError, joined_hints
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.consequences import error_of
from tpuctl.flows.runs.evidence.signs import RecordMissingError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import Backoff, Clock, Sleep
from tpuctl.runs import Verdict

PAUSES = Backoff(first=0.5, longest=10.0)


def await_end(
    run: StoredRun, witnesses: Witnesses, seconds: float, report: Report,
    sleep: Sleep = polling.sleep, clock: Clock = time.monotonic,
) -> Verdict:  # fmt: skip
    """Return the verdict of a run once it has one; `report` gets each change of its state.

    A service that does not answer is waited for. Raises NotFoundError without such a run, DeadlineError after
    so many seconds, BadObjectError and RecordMissingError where no verdict can come any more, and
    InterruptedByUser on Ctrl-C.
    """
    deadline, label = clock() + seconds, ""
    try:
        for pause in PAUSES.pauses():
            text = ""
            try:
                state = settle(run, witnesses)
                if state.verdict:
                    return state.verdict
                text = _label(state)
            except DeadlineError as error:
                text = error.message
            if text != label:
                report(text)
                label = text
            if clock() >= deadline:
                raise _late(run, seconds, label)
            sleep(max(0.0, min(pause, deadline - clock())))
    except KeyboardInterrupt as interrupt:
        raise InterruptedByUser(
            f"Interrupted; run '{run.name}' goes on.", hint=next_steps(run.name)
        ) from interrupt
    raise AssertionError("pauses() has no end")


def next_steps(run: str) -> str:
    """Return what a user may do about a run that goes on."""
    return joined_hints(f"Follow it: tpuctl logs -f {run}", f"Stop it: tpuctl cancel {run}")


def failure_of(verdict: Verdict) -> TpuctlError | None:
    """Return the error of a run that did not succeed, with how it ended for programs."""
    error = error_of(verdict)
    if error:
        error.result = summary(verdict)
    return error


def summary(verdict: Verdict) -> dict[str, object]:
    """Return how a run ended, for programs."""
    return {
        "run": verdict.run, "outcome": verdict.outcome, "evidence": verdict.evidence,
        "exit_code": verdict.exit_code,
    }  # fmt: skip


def _label(state: RunState) -> str:
    if state.error:
        raise state.error
    if state.sign:
        raise RecordMissingError(state.sign)
    reason = state.unanswered or state.doubt
    return f"{state.label}: {reason}" if reason else state.label


def _late(run: StoredRun, seconds: float, label: str) -> DeadlineError:
    return DeadlineError(
        f"Run '{run.name}' has not ended within {seconds:.0f} s: it is {label}.", hint=next_steps(run.name)
    )
