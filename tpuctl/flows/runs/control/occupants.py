"""Says which runs a TPU is busy with: those that go on there, and those that wait in its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import NodePaths, RunPaths
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import ConflictError, NotFoundError, StateError
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.lookup import WIDTH, StartedRun, started_on
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.parallel import fanout, values
from tpuctl.worker.records import DEFAULT_GRACE, QUEUED

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket
    from tpuctl.flows.runs.evidence.witnesses import Witnesses
    from tpuctl.nodes import Node


@dataclass(frozen=True)
class Occupant:
    """A run that has not ended on a node."""

    run: str
    submitter: str
    since: str
    """ISO-8601, UTC, by the bucket's clock."""
    state: str
    """One of `outcome.LABELS`."""

    @property
    def waits(self) -> bool:
        """Whether it waits in line."""
        return self.state == QUEUED


def occupants(bucket: Bucket, witnesses: Witnesses, node: Node, warn: Report) -> list[Occupant]:
    """Return the runs that have not ended on a node, the first in its line first.

    A run that cannot be read is told to `warn`, and not counted.
    """
    started = {item.run: item for item in reversed(started_on(bucket, NodePaths.of(node.id)))}

    def look(item: StartedRun) -> Occupant | None:
        run = StoredRun(bucket, item.run, warn)
        try:
            if run.verdict() and run.is_closed:
                return None
            from tpuctl.flows.runs.outcome import settle  # noqa: PLC0415  slow, and most nodes are free

            state = settle(run, witnesses)
            if state.error:
                raise state.error
            if state.verdict or run.last_attempt().record.tpu.uid != node.id.uid:
                return None
            return Occupant(item.run, run.record.submitter, item.started, state.label)
        except NotFoundError:
            return None  # it was never started
        except BadObjectError as error:
            warn(f"Whether run '{item.run}' uses the TPU is unknown: {error.message}")
            return None

    listed = values(fanout(look, started.values(), width=WIDTH))
    return [occupant for occupant in listed if occupant]


def busy_error(
    node: Node, busy: Sequence[Occupant], ages: Sequence[str], command: str, script: str
) -> StateError:
    """Return the error of a submission to a busy node; `ages` says since when each run is there."""
    first, more = busy[0], len(busy) - 1
    others = f", and {more} more {'wait' if more > 1 else 'waits'}" if more else ""
    place = f"({first.state}, {ages[0]}){others}"
    return StateError(
        f"{node.name} is busy with run '{first.run}' of {first.submitter} {place}.",
        hint=f"Wait in line: tpuctl {command} --queue {script}."
        f" Stop it, and start: tpuctl {command} --replace {script}."
        f" Or wait first: tpuctl wait {first.run}",
        busy=[occupant.run for occupant in busy],
    )


def check_replaceable(bucket: Bucket, node: Node, busy: Sequence[Occupant], run: str) -> None:
    """Raise what would keep `run` from its start once the others are stopped.

    ConflictError for a name that is taken, StateError where others wait in line: they would start instead.
    """
    if bucket.stat(RunPaths(run).record):
        raise ConflictError(f"There is a run '{run}' already.", hint="Choose another --name.")
    waiting = [occupant.run for occupant in busy if occupant.waits]
    if waiting:
        raise StateError(
            f"In the line of {node.name} wait: {', '.join(waiting)}. They would start in its place.",
            hint=f"Wait behind them (--queue), or take one out of the line: tpuctl cancel {waiting[0]}",
        )


def stop_all(
    bucket: Bucket, provider: Provider, ssh: Ssh, witnesses: Witnesses, busy: Sequence[Occupant], by: str,
    report: Report,
) -> None:  # fmt: skip
    """Stop runs for an account, and return once their workers have ended: the chips are free then.

    Raises as `cancel` does.
    """
    from tpuctl.flows.runs.control.cancel import cancel, plan_cancel  # noqa: PLC0415  as above

    for occupant in busy:
        plan = plan_cancel(bucket, witnesses, occupant.run, by, DEFAULT_GRACE)
        cancel(provider, ssh, witnesses, plan, report)
