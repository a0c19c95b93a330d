"""The command drill: of a TPU, or of a run."""

from __future__ import annotations

import dataclasses

import click

from tpuctl.cli import output
from tpuctl.cli.nodes import drill as node_drill
from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.progress import show_steps
from tpuctl.cli.runs.watch import tools
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.errors import UsageError
from tpuctl.flows.progress import silent
from tpuctl.flows.runs.description import find_described
from tpuctl.flows.runs.recovery import drill as flow
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import HttpRequest


@click.command()
@click.argument("name", metavar="TPU|RUN")
@click.option("--preempt", is_flag=True, help="Preempt the TPU, as is done for a run: on the simulator only.")
@click.option("--reboot", is_flag=True, help="Of a run: reboot its hosts, which resume it.")
@click.option("--worker", type=int, default=0, show_default=True, help="Of a TPU: worker of the maintenance.")
@click.option("--notice", type=float, default=0.0, help="Seconds of notice before a preemption or reboot.")
@click.option("--owner", default="", help="Whose TPU it is, if it is not yours ('-': nobody's).")
@yes_option
@dry_run_option
@with_session
def drill(
    session: Session, name: str, preempt: bool, reboot: bool, worker: int, notice: float, owner: str,
    yes: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Rehearse what may happen to a TPU, and show what the TPU and its runs do.

    Of a TPU: the Cloud TPU API simulates a maintenance. Of a run, on the simulator: its TPU is preempted or
    rebooted, the run is restarted, and the cost is told: what was saved, steps lost, time to the next step.

    \b
    Example:
      tpuctl drill my-tpu --worker 1
      tpuctl drill digits-20260131-120000 --notice 30 --target sim
    """
    stored = find_described(session.cloud.bucket, name) if session.config.get("bucket") else None
    if stored is None or (preempt and not reboot and node_drill.exists(session, name)):
        if reboot:
            raise UsageError(
                f"--reboot is for a run, and '{name}' is none.", hint="'tpuctl runs' lists them."
            )
        node_drill.drill(session, name, preempt, worker, notice, owner, yes=yes, dry_run=dry_run)
        return
    _drill_run(session, stored, flow.REBOOT if reboot else flow.PREEMPTION, notice, yes=yes, dry_run=dry_run)


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
            planned, tools(session, report), lambda: strike(planned.node, notice),
            lambda tpu: session.prices.of(tpu),
        )  # fmt: skip
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
