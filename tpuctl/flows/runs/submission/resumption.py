"""Says whether the hosts of a run resume it by themselves after a reboot, and what keeps them from that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tpuctl.flows.runs.state import LOSSES
from tpuctl.masking import MASK, is_secret
from tpuctl.runs import Run, Verdict

WITHOUT_END = -1
"""As host/worker/records.py says it."""


def not_kept(variables: Mapping[str, str], secrets: Collection[str]) -> tuple[str, ...]:
    """Return the variables whose values hosts do not keep on disk: secrets, and what looks like one."""
    return tuple(name for name, value in variables.items() if name in secrets or is_secret(name, value))


def obstacle(run: Run) -> str:
    """Return why the hosts of a run with restarts do not resume it, as a clause; empty where they do."""
    if run.not_kept is None:
        return "an earlier version of tpuctl has submitted it"
    if run.not_kept:
        value = "value" if len(run.not_kept) == 1 else "values"
        return f"hosts do not keep the {value} of {', '.join(run.not_kept)}"
    if any(MASK in text for text in (*run.arguments, *run.dependencies, run.setup)):
        return "hosts do not keep the secret in its arguments or commands"
    return ""


def restarts_left(run: Run, verdicts: Sequence[Verdict]) -> int:
    """Return how often its hosts may resume a run whose attempts have ended like this; 0 for never."""
    most = run.restarts.after_loss
    if run.machine is None or most == 0 or obstacle(run):
        return 0
    if most is None:
        return WITHOUT_END
    return max(0, most - sum(verdict.outcome in LOSSES for verdict in verdicts))


def note(run: Run) -> list[str]:
    """Return a sentence for who submits a run that is started again, but not by its hosts."""
    reason = obstacle(run) if run.machine and run.restarts.after_loss != 0 else ""
    if not reason:
        return []
    return [f"After a reboot of its TPU this run resumes only while somebody watches it: {reason}."]
