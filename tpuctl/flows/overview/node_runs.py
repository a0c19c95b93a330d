"""Finds the runs of a node by its folder in the bucket: a list for each node, none for other runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import NodePaths, RunPaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.errors import NotFoundError
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError
from tpuctl.flows.runs.lookup import StartedRun, started_on
from tpuctl.flows.runs.state import RECORD_MISSING, RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, UNKNOWN
from tpuctl.nodes import Node
from tpuctl.parallel import fanout, values
from tpuctl.runs import Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


MOST_NAMED = 10
"""Names of runs that are looked at for each run that is returned: anybody can write names without a run."""
MOST_AT_STAKE = 10
"""Newest runs of a node of which one may work, or wait in line."""


@dataclass(frozen=True)
class RunOnNode:
    """An attempt of a run that was started on a node."""

    run: str
    attempt: int
    started: str
    """ISO-8601, UTC."""
    state: str
    """The verdict's outcome, or what its workers wrote last."""
    verdict: Verdict | None = None
    trouble: str = ""
    """What is odd about its scripts: that they hold no chip."""

    @property
    def works(self) -> bool:
        """Whether it may still run there, as far as the bucket says."""
        return self.verdict is None and self.state not in (FINISHED, UNKNOWN)


@dataclass(frozen=True)
class Stake:
    """A run that a deletion of its node would end, with the checkpoint that would be left of it."""

    run: RunOnNode
    checkpoint: str
    """Its last committed one; empty for none."""


@dataclass(frozen=True)
class Workload:
    """The newest run of each node, by the nodes' uids."""

    newest: Mapping[str, RunOnNode] = field(default_factory=dict)
    unknown: str = ""
    """Why the bucket does not say; empty if it does."""

    def on(self, node: Node) -> RunOnNode | None:
        """Return the run that works on a node; None without one, or where the bucket does not say."""
        run = self.newest.get(node.id.uid)
        return run if run and run.works else None


def workload(bucket: Bucket, nodes: Iterable[Node], warn: Report = silent) -> Workload:
    """Return the newest run of each node; a bucket that does not answer is said, and raises nothing."""
    listed = [node for node in nodes if node.id.uid]
    results = fanout(lambda node: runs_on(bucket, NodePaths.of(node.id), warn, most=1), listed)
    unknown = next((result.error.message for result in results if result.error), "")
    newest = {result.item.id.uid: result.value[0] for result in results if result.value}
    return Workload(newest, unknown)


def stakes(bucket: Bucket, node: Node) -> list[Stake]:
    """Return the runs that work on a node or wait for it, the oldest first."""
    works = [run for run in runs_on(bucket, NodePaths.of(node.id), most=MOST_AT_STAKE) if run.works]
    from tpuctl.flows.runs.checkpoints import last_committed  # noqa: PLC0415  not needed by ls

    return [Stake(run, last_committed(bucket, RunPaths(run.run).checkpoints)) for run in reversed(works)]


def runs_on(
    bucket: Bucket, paths: NodePaths, warn: Report = silent, most: int | None = None
) -> list[RunOnNode]:
    """Return the runs that were started on a node, the newest first, `most` at most."""
    return runs_of(bucket, started_on(bucket, paths), paths.uid, warn, most)


def runs_of(
    bucket: Bucket, chosen: Sequence[StartedRun], uid: str, warn: Report = silent, most: int | None = None
) -> list[RunOnNode]:
    """Return the runs of attempts that the folder of the node `uid` names, in order, `most` at most."""
    width = most or max(1, len(chosen))
    states: list[RunOnNode] = []
    for first in range(0, min(len(chosen), MOST_NAMED * width), width):
        batch = chosen[first : first + width]
        read = fanout(lambda item: _run_on_node(bucket, item, uid, warn), batch)
        states += filter(None, values(read))
        if len(states) >= width:
            break
    return states[:most]


def _run_on_node(bucket: Bucket, item: StartedRun, uid: str, warn: Report) -> RunOnNode | None:
    """Return None where the attempt was never written, or is gone."""
    name, attempt, started = item.run, item.attempt, item.started
    run = StoredRun(bucket, name, warn)
    try:
        verdict = run.verdict()
        if verdict is None or verdict.attempt != attempt:
            verdict = run.kept_verdict(attempt)  # of one that was started again elsewhere
        if verdict:
            return RunOnNode(name, attempt, started, verdict.outcome, verdict)
        state = RunState(None, run.attempt(attempt).statuses())
        return RunOnNode(name, attempt, started, state.label, trouble=state.no_chip)
    except RecordMissingError as error:
        is_here = uid in error.sign.tpu_uids and error.sign.attempt == attempt
        return RunOnNode(name, attempt, started, RECORD_MISSING) if is_here else None
    except BadObjectError as error:
        warn(error.message)
        return RunOnNode(name, attempt, started, UNKNOWN)
    except NotFoundError:
        return None
