"""The command drill, of a TPU."""

from __future__ import annotations

from tpuctl.cli import output
from tpuctl.cli.nodes.table import allocation_table
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm
from tpuctl.flows.nodes.inventory import Allocation
from tpuctl.flows.runs import drill as flow
from tpuctl.nodes import NodeState
from tpuctl.nodes.readiness import REPLACEMENT


def exists(session: Session, node: str) -> bool:
    """Return whether there is a TPU of this name."""
    return any(each.name == node for each in session.cloud.provider.list_nodes().nodes)


def drill(
    session: Session, node: str, preempt: bool, worker: int, notice: float, owner: str, *, yes: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Rehearse a maintenance of a TPU, or a preemption, and show what the TPU and its runs do."""
    cloud = session.cloud
    if preempt:
        cloud.require_simulator()
    provider = cloud.provider
    bucket = cloud.bucket if session.config.get("bucket") else None
    plan = flow.plan_drill(
        provider, bucket, node, session.owner, zone=session.from_flag("zone"), whose=owner,
        worker=None if preempt else worker,
    )  # fmt: skip
    if dry_run:
        output.requests(flow.requests(provider, plan), as_json=session.as_json)
        return
    _ask(session, plan, yes=yes)
    with show_steps() as report:
        result = flow.drill(
            provider, plan, lambda: cloud.preempt(plan.node.id, notice), session.context.now, report
        )
    _show(session, plan, result)


def _ask(session: Session, plan: flow.DrillPlan, *, yes: bool) -> None:
    allocation_table([Allocation((plan.node,))], session.now, err=True)
    names = ", ".join(run.name for run in plan.runs)
    output.note(f"Running there: {names}." if names else "No run of this bucket is on it.")
    if plan.change:
        output.note("It can end what runs there, as a maintenance by the provider can.")
        confirm(f"Simulate a maintenance of worker {plan.change.worker}?", yes=yes)
    else:
        confirm(f"Preempt {plan.node.name}? It never runs again.", yes=yes)


def _show(session: Session, plan: flow.DrillPlan, result: flow.DrillReport) -> None:
    if session.as_json:
        output.json({"drill": result})
    else:
        output.table(("TIME", "EVENT"), [(moment.at, moment.event) for moment in result.moments])
        for run in result.runs:
            checkpoints = f"{run.checkpoint_before or 'none'}, then {run.checkpoint_after or 'none'}"
            states = f"{run.before}, then {run.after}: {run.evidence}"
            output.facts({"run": run.run, "state": states, "last checkpoint": checkpoints})
    if result.state == NodeState.PREEMPTED:
        kept = plan.node.is_kept_by_terraform
        output.hint(*([REPLACEMENT] if kept else [plan.node.deletion, "tpuctl up"]))
    elif result.runs:
        output.hint(f"tpuctl logs {result.runs[0].run} --tail 20")
