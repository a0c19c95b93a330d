"""The command drill: of a TPU, or of a run."""

from __future__ import annotations

import dataclasses

import click

from tpuctl.cli import output
from tpuctl.cli.nodes.table import allocation_table
from tpuctl.cli.printing import price_fields
from tpuctl.cli.progress import show_steps
from tpuctl.cli.runs.watch import tools
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.progress import silent
from tpuctl.flows.runs.description import find_described
from tpuctl.flows.runs.recovery import drill as flow
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import HttpRequest


@click.command()
@click.argument("name", metavar="TPU|RUN")
@click.option("--reboot", is_flag=True, help="Of a run: reboot its hosts, which resume it.")
@click.option("--worker", type=int, default=0, show_default=True, help="Of a TPU: worker of the maintenance.")
@click.option("--notice", type=float, default=0.0, help="Of a run: seconds of notice before it is lost.")
@click.option("--owner", default="", help="Whose TPU it is, if it is not yours ('-': nobody's).")
@yes_option
@dry_run_option
@with_session
def drill(
    session: Session, name: str, reboot: bool, worker: int, notice: float, owner: str, yes: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Rehearse a maintenance of a TPU, or the loss of the TPU of a run.

    Of a TPU: the Cloud TPU API simulates a maintenance. Of a run, on the simulator: its TPU is preempted or
    rebooted, the run is restarted, and the cost is told: what was saved, steps lost, time to the next step.

    \b
    Example:
      tpuctl drill my-tpu --worker 1
      tpuctl drill digits-20260131-120000 --notice 30 --target sim
    """
    stored = find_described(session.cloud.bucket, name) if session.config.get("bucket") else None
    if stored:
        kind = flow.REBOOT if reboot else flow.PREEMPTION
        _drill_run(session, stored, kind, notice, yes=yes, dry_run=dry_run)
    elif reboot:
        raise UsageError(f"--reboot is for a run, and '{name}' is none.", hint="'tpuctl runs' lists them.")
    else:
        _drill_tpu(session, name, worker, owner, yes=yes, dry_run=dry_run)


def _drill_tpu(session: Session, name: str, worker: int, owner: str, *, yes: bool, dry_run: bool) -> None:
    provider = session.cloud.provider
    bucket = session.cloud.bucket if session.config.get("bucket") else None
    plan = flow.plan_maintenance(
        provider, bucket, name, session.owner, zone=session.from_flag("zone"), whose=owner, worker=worker
    )
    if dry_run:
        output.requests([provider.http_request(plan.change)], as_json=session.as_json)
        return
    allocation_table([Allocation((plan.node,))], session.time, err=True)
    names = ", ".join(run.name for run in plan.runs)
    output.note(f"Running there: {names}." if names else "No run of this bucket is on it.")
    output.note("It can end what runs there, as a maintenance by the provider can.")
    confirm(f"Simulate a maintenance of worker {worker}?", yes=yes)
    with show_steps() as report:
        result = flow.simulate_maintenance(provider, plan, report)
    if session.as_json:
        output.json({"drill": result})
    elif result.runs:
        output.table(("RUN", "STATE", "WHY"), [(run.run, run.state, run.evidence) for run in result.runs])
    if result.runs:
        output.hint(f"tpuctl logs {result.runs[0].run} --tail 20")


def _drill_run(
    session: Session, stored: StoredRun, kind: str, notice: float, *, yes: bool, dry_run: bool
) -> None:
    cloud = session.cloud
    cloud.require_simulator()
    planned = flow.plan(stored, tools(session, silent), kind, session.owner)
    if dry_run:
        shown = [HttpRequest("SIMULATOR", planned.tpu.name, kind)]
        output.requests(shown, as_json=session.as_json)
        return
    confirm(f"Have run '{stored.name}' lose {planned.tpu.name} by a {kind}?", yes=yes)
    strike = cloud.reboot if kind == flow.REBOOT else cloud.preempt
    with show_steps() as report:
        result = flow.drill(
            planned,
            tools(session, report),
            lambda: strike(planned.node, notice),
            lambda tpu: session.prices.of(tpu),
        )
    _show(session, result)


def _show(session: Session, result: flow.RunDrillReport) -> None:
    if session.as_json:
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        output.json({"drill": {**fields, "cost": price_fields(result.cost)}})
        return
    seconds = result.seconds_without_steps
    output.facts(
        {
            "run": result.run,
            result.kind: result.begun,
            "ended": f"{result.ended}, {result.outcome}: {result.evidence}",
            "saved": result.saved or "nothing after the notice",
            "resumed from": result.resumed_from or "no checkpoint",
            "steps lost": "unknown" if result.steps_lost is None else result.steps_lost,
            "restarted": f"{result.restarted}, attempt {result.attempt} on {result.node} in {result.zone}",
            "next step": result.next_step or "none was told: its log has no 'step N'",
            "without progress": "unknown" if seconds is None else f"{seconds:.0f} s, {result.cost.short}",
        }
    )
    output.hint(f"tpuctl describe {result.run}")
