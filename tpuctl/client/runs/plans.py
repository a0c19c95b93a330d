"""What a submission would start, to be looked at before it does."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.client.context import Call, Context, Stop
from tpuctl.client.nodes.creation import request_records
from tpuctl.client.nodes.records import RequestInfo
from tpuctl.client.records import ProgressCallback
from tpuctl.client.runs import busy, starting, submission
from tpuctl.client.runs.run import Run
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest


class RunPlan:
    """What `client.submit` with the same options would start; nothing is done before `start`."""

    name: str
    """Of the run; one that was not chosen may get a number."""
    node: str
    zone: str
    workers: tuple[int, ...]
    """Those that run the script."""
    dataset: str
    """NAME/VERSION; empty without one."""
    notes: tuple[str, ...]
    """What was noticed about the script and its code."""

    def __init__(self, context: Context, plan: SubmitPlan, policy: busy.Policy, typed: Sequence[str]) -> None:
        self._context = context
        self._plan = plan
        self._policy = policy
        self._typed = typed
        self.name = plan.run.run
        self.node = plan.node.name
        self.zone = plan.node.zone
        self.workers = tuple(plan.attempt.workers)
        self.dataset = str(plan.run.dataset or "")
        self.notes = plan.notes

    @property
    def requests(self) -> tuple[RequestInfo, ...]:
        """What `start` would send."""
        return request_records(submission.requests(self._context, self._plan))

    def start(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> Run:
        """Start it, and return its run once every worker has begun."""
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            name = starting.start(self._context, self._plan, self._policy, self._typed, call)
        return Run(self._context, name)


def planned(
    context: Context, request: SubmitRequest, policy: busy.Policy, typed: Sequence[str], call: Call
) -> RunPlan:
    """Return the plan of a submission; sends reads only."""
    return RunPlan(context, submission.plan(context, request, starting.counted(call)), policy, typed)
