"""Says which step of a whole run is next, by what the bucket has under its name."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from tpuctl.errors import ConflictError, NotFoundError
from tpuctl.flows.nodes.plan import NODE_NAME
from tpuctl.flows.runs.evidence.signs import RecordMissingError, sign_of
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.plan import SubmitRequest, default_name
from tpuctl.masking.arguments import masked_arguments
from tpuctl.runs import Tpu, Verdict


@dataclass(frozen=True)
class Stage:
    """How far a run has come."""

    verdict: Verdict | None = None
    """How it ended, if it has."""
    tpu: Tpu | None = None
    """The node of its last attempt; None before the first."""
    attempt: int = 0
    """The number of that attempt."""
    is_launched: bool = False
    """Whether every worker has said something: nothing is left to be started."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and no other attempt is to follow."""
        return self.verdict is not None and not self.verdict.restarts

    @property
    def is_restarted(self) -> bool:
        """Whether it is to be started again, or was."""
        return self.attempt > 1 or (self.verdict is not None and self.verdict.restarts)


def look(run: StoredRun, witnesses: Witnesses) -> Stage:
    """Return how far a run has come; an attempt that has ended before it had started counts as none.

    Raises BadObjectError where its records cannot be read, RecordMissingError where it works without them.
    """
    verdict = run.verdict()
    if not run.attempt_numbers():
        sign = sign_of(run.bucket, run.name)
        if sign:
            raise RecordMissingError(sign)
        return Stage(verdict)
    state = settle(run, witnesses)
    if state.error:
        raise state.error
    if state.verdict and state.verdict.is_unstarted:
        return Stage()
    attempt = run.last_readable_attempt()
    is_launched = None not in attempt.statuses()
    return Stage(state.verdict, attempt.record.tpu, attempt.number, is_launched)


def require_same(run: StoredRun, request: SubmitRequest) -> None:
    """Raise ConflictError for a run of this name that has another script or other arguments."""
    try:
        record = run.record
    except NotFoundError:
        return
    arguments = masked_arguments(request.arguments).arguments
    names = [PurePosixPath(str(script)).name for script in (record.script, request.script)]
    if names[0] != names[1] or record.arguments != arguments:
        raise ConflictError(
            f"There is a run '{run.name}' already, of {record.script} or with other arguments.",
            hint="Choose another --name, or none.",
        )


def new_name(request: SubmitRequest, at: datetime) -> str:
    """Return a name for a run that nobody else chooses at the same second, also for the same script."""
    return f"{default_name(request, at)}-{secrets.token_hex(2)}"


def node_name(run: str) -> str:
    """Return the name of the node that is made for a run: always the same, so that it is found again."""
    if NODE_NAME.fullmatch(run):
        return run
    return f"run-{run.rstrip('-')[:59]}"
