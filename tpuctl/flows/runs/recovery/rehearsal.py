"""Shows the requests by which the next step of a watcher would change something, for --dry-run."""

from __future__ import annotations

from tpuctl import runs
from tpuctl.flows.nodes import down, up
from tpuctl.flows.runs import restarts
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.authority import machine_of, own_node
from tpuctl.flows.runs.recovery.machine import left_items, plan_machine
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import HttpRequest, NodeState
from tpuctl.recovery.records import Lease


def requests(run: StoredRun, tools: Tools) -> list[HttpRequest]:
    """Return what a step would send for a run; nothing for one that goes on or has ended for good.

    A run whose end nobody has written yet goes on. Raises as a search for capacity does.
    """
    verdict, machine = run.verdict(), run.record.machine
    if verdict is None or machine is None or not verdict.restarts or run.stop_request():
        return []
    number, before = verdict.attempt + 1, run.attempt(verdict.attempt).record.tpu
    rehearsal = StoredRun(run.bucket.dry_run(), run.name)
    lease = Lease(run.name, number, "TOKEN", tools.holder, leases.SECONDS)
    rehearsal.bucket.create(run.paths.lease(number), runs.encode(lease))
    rehearsal.keep_verdict(verdict)
    shown = list(rehearsal.bucket.requests)  # type: ignore[attr-defined]  # a DryRunBucket
    is_bad = restarts.needs_other_machine([*run.earlier_verdicts(verdict.attempt), verdict])
    recipe = machine_of(run.bucket.name, run.record, tools.limits)
    name, node = before.name, own_node(tools.provider, run.bucket, run.record, before)
    if is_bad or node is None or node.state is not NodeState.READY:
        left, _ = left_items(tools, run, machine.owner, before)
        shown += down.requests(tools.provider, down.DownPlan(left))
        plan = plan_machine(tools, run.name, recipe, number)
        shown += up.requests(tools.provider, plan)
        name = plan.options.name
    return [*shown, HttpRequest("SSH", name, f"start {run.record.script} as attempt {number}")]
