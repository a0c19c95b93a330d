"""Decides which of several submissions in one moment has the TPU: that which the bucket took first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import RUN_ON_NODE, NodePaths
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError
from tpuctl.flows.runs.stored_run import StoredRun

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object
    from tpuctl.flows.runs.submission.plan import SubmitPlan

LONGEST = 600.0
"""Seconds after an announcement within which another submission may not have seen it when it looked."""
UNDER_WAY = 60.0
"""Seconds within which a submission that was announced has its attempt, unless it was killed."""


def take_turn(run: StoredRun, plan: SubmitPlan) -> None:
    """Announce a run for the plan's node; raises StateError if another was first and has not ended.

    Nothing of the run is left in the bucket then. Both find the TPU free before: the announcements have an
    order, and each is written before it looks for others.
    """
    bucket, taken = run.bucket, list["Object"]()
    for part in plan.node.id.parts:  # in their order: of two runs on the same slices one has the first
        node = NodePaths.of(part)
        run.announce(plan.attempt, part)
        listed = {item.name: item for item in bucket.objects(node.runs)}
        own = listed[node.run(run.name, plan.attempt.attempt)]
        taken.append(own)
        for rival in listed.values():
            match = RUN_ON_NODE.fullmatch(rival.name.removeprefix(node.runs))
            if match and match[1] != run.name and _is_ahead(bucket, match[1], rival, own):
                record = bucket.stat(run.paths.record) if plan.attempt.attempt == 1 else None
                for item in (*taken, record):
                    if item:
                        bucket.remove(item)
                raise _busy(plan, match[1])


def _is_ahead(bucket: Bucket, name: str, rival: Object, own: Object) -> bool:
    """Return whether a run was announced shortly before and has not ended."""
    age = (clock.parse(own.updated) - clock.parse(rival.updated)).total_seconds()
    if rival.generation >= own.generation or age > LONGEST:
        return False
    run = StoredRun(bucket, name)
    if run.verdict():
        return False
    try:
        statuses = run.last_readable_attempt().statuses()
    except RecordMissingError:
        return True
    except NotFoundError:
        return age <= UNDER_WAY and bucket.stat(run.paths.record) is not None  # which is written first
    return not all(status and status.is_finished for status in statuses)


def _busy(plan: SubmitPlan, rival: str) -> StateError:
    name, way = plan.node.name, "" if plan.node.slices else "in line with --queue, or wait "
    return StateError(
        f"{name} is busy with run '{rival}', which was submitted at the same moment.",
        hint=f"Wait {way}first: tpuctl wait {rival}",
        busy=[rival],
    )
