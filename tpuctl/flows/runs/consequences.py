"""Says what the end of a run means for who waited for it: an error, its exit code, and the next command."""

from __future__ import annotations

import re
from typing import NamedTuple

from tpuctl import runs
from tpuctl.errors import JobFailedError, PreemptedError, StateError, TpuctlError
from tpuctl.host.worker.records import CHIPS_HELD, CHIPS_LOCKED, DISK_FULL, OUT_OF_MEMORY
from tpuctl.runs import Verdict


class _Consequence(NamedTuple):
    """What an outcome but success means for who waited."""

    error: type[TpuctlError]
    words: str
    advice: str = ""
    """Fits before a colon and a command."""
    command: str = ""
    """For a run whose node is known; empty for the end of the log."""


LOG_END = "See the end of its log"
CONSEQUENCES = {
    runs.FAILED: _Consequence(JobFailedError, "failed"),
    runs.PREEMPTED: _Consequence(
        PreemptedError, "was preempted", "Make a TPU again, then submit it again",
        "tpuctl up {type}{spot} --zone {zone}",
    ),
    runs.MAINTENANCE: _Consequence(
        StateError, "was ended by maintenance", "Submit it again once the node is READY",
        "tpuctl wait {node}",
    ),
    runs.STOPPED: _Consequence(
        StateError, "was stopped", "See what happened to its TPU", "tpuctl why {node}"
    ),
    runs.LOST: _Consequence(StateError, "was lost", "See what happened to its TPU", "tpuctl why {node}"),
}  # fmt: skip
CAUSES = {
    runs.UNSTARTED: _Consequence(
        JobFailedError, "was not started", "The same command with --name {run} starts it; what is known",
        "tpuctl describe {run}",
    ),
    OUT_OF_MEMORY: _Consequence(
        JobFailedError, "failed", "Use a smaller batch, or a larger slice; its last lines"
    ),
    DISK_FULL: _Consequence(
        JobFailedError, "failed", "Delete files on its hosts, or write to gs://",
        "tpuctl exec {node} -- df -h",
    ),
    CHIPS_HELD: _Consequence(
        JobFailedError, "failed", "End the process that holds the chips; the log names it",
        "tpuctl logs {run} --grep 'is held by'",
    ),
    CHIPS_LOCKED: _Consequence(
        JobFailedError, "failed", "If nobody holds the chips, delete the lock file that another user left",
        "tpuctl exec {node} -- sudo rm -f /tmp/libtpu_lockfile",
    ),
}  # fmt: skip
"""By the cause of a failure."""
MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (No module named '[\w.]{1,200}')")
"""The last line of a script that imports what its host does not have."""


AGAIN = "Start it again from its last checkpoint, on another machine where that is needed"


def _consequence(verdict: Verdict) -> _Consequence:
    if verdict.restarts:
        return CONSEQUENCES[verdict.outcome]._replace(advice=AGAIN, command="tpuctl watch {run}")
    if verdict.outcome == runs.FAILED and verdict.cause in CAUSES:
        return CAUSES[verdict.cause]
    if _missing(verdict):
        return CONSEQUENCES[runs.FAILED]._replace(
            advice="Add the package that has it to dependencies in the script's header, or, for a file of "
            "yours, ship it with --include; its last lines"
        )
    other = _Consequence(StateError, f"was {verdict.outcome}")  # of a later version
    return CONSEQUENCES.get(verdict.outcome, other)


def error_of(verdict: Verdict) -> TpuctlError | None:
    """Return the error that a verdict means for a command that waited for the run; None for success."""
    if verdict.outcome == runs.SUCCEEDED:
        return None
    consequence = _consequence(verdict)
    hint = _hint(verdict)
    if verdict.stopped_by:
        message = f"Run '{verdict.run}' was {verdict.evidence}."
        return consequence.error(message, hint=hint, stopped_by=verdict.stopped_by)
    facts = {"job_exit_code": verdict.exit_code} if verdict.outcome == runs.FAILED else {}
    missing = _missing(verdict)
    evidence = verdict.evidence.removesuffix(".") + (f": {missing}" if missing else "")
    message = f"Run '{verdict.run}' {consequence.words}: {evidence}."
    return consequence.error(message, hint=hint, **facts)


def success_of(verdict: Verdict) -> str:
    """Return that a run has succeeded, as a sentence, with what its evidence says besides."""
    besides = verdict.evidence.partition("; ")[2].removesuffix(".")
    return f"Run '{verdict.run}' {verdict.outcome}{f'; {besides}' if besides else ''}."


def _missing(verdict: Verdict) -> str:
    """Return Python's words for a module that the failed script could not import; "" for any other end."""
    match = MISSING.match(verdict.last_line) if verdict.outcome == runs.FAILED else None
    return match.group(1) if match else ""


def _hint(verdict: Verdict) -> str:
    command, consequence = next_command(verdict), _consequence(verdict)
    is_other = consequence.command and command == _end_of_log(verdict)
    if verdict.stopped_by and verdict.tpu is None:
        return f"See what was asked for: {command}"
    advice = "" if is_other else consequence.advice
    return f"{(advice or LOG_END).format(run=verdict.run)}: {command}"


def next_command(verdict: Verdict) -> str:
    """Return the command that a user needs next: the results of a success, else what shows the reason."""
    if verdict.outcome == runs.SUCCEEDED:
        return f"tpuctl pull {verdict.run}"
    if verdict.stopped_by and verdict.tpu is None:  # before it had an attempt, and so a log
        return f"tpuctl describe {verdict.run}"
    command, tpu = _consequence(verdict).command, verdict.tpu
    if tpu is None or not command or verdict.stopped_by:
        return _end_of_log(verdict)
    spot = (f" --slices {len(tpu.slices)}" if tpu.slices else "") + (" --spot" if tpu.spot else "")
    return command.format(run=verdict.run, node=tpu.name, zone=tpu.zone, type=tpu.accelerator, spot=spot)


def _end_of_log(verdict: Verdict) -> str:
    return f"tpuctl logs {verdict.run} --tail 20"
