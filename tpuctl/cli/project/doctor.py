"""The command doctor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, with_session, yes_option
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.errors import ConfigError, DeclinedError, UsageError
from tpuctl.flows.project import doctor as flow

if TYPE_CHECKING:
    from tpuctl.client.first_day import FirstDay

FAULTS = (flow.FAILED, flow.DIFFERENT)
REPORT = Path("tpuctl-doctor.md")
STAGES = (0, 1, 2)


@click.command()
@click.option(
    "--live",
    is_flag=True,
    help="Also try on real TPUs what tpuctl takes for granted, in stages that ask first: 0 creates nothing, "
    "1 a v5litepod-1, 2 a spot v5litepod-16. Both are deleted; the differences are written into a report.",
)
@click.option(
    "--stage",
    "stages",
    type=click.IntRange(STAGES[0], STAGES[-1]),
    multiple=True,
    help="With --live, only this stage; repeatable.",
)
@click.option(
    "--report", type=OUTPUT_PATH, metavar="FILE", help=f"With --live, where to write it; default: {REPORT}."
)
@yes_option
@with_session
def doctor(session: Session, live: bool, stages: tuple[int, ...], report: Path | None, yes: bool) -> None:
    """Check packages, credentials, project, API, zone, buckets, network and SSH key, in this order.

    After 'tpuctl init --from-terraform', also compare the settings with Terraform's outputs.

    \b
    Example:
      tpuctl doctor
      tpuctl doctor --live --stage 0
    """
    if not live and (stages or report or yes):
        raise UsageError("--stage, --report and --yes are for --live.", hint="tpuctl doctor --live")
    session.announce()
    findings = _live(session, stages or STAGES, report or REPORT, yes=yes) if live else _checks(session)
    error = _error([finding for finding in findings if finding.state in FAULTS])
    if error:
        error.result = {"checks": findings}
        raise error
    if session.as_json:
        output.json({"checks": findings})
    output.hint("tpuctl up v3-8")


def _checks(session: Session) -> list[flow.Finding]:
    findings = []
    for finding in flow.examine(session.config, lambda: session.cloud):
        findings.append(finding)
        if not session.as_json:
            _show(finding)
    return findings


def _live(session: Session, stages: Sequence[int], report: Path, *, yes: bool) -> list[flow.Finding]:
    """Run the stages, each once it is confirmed, and write the report, however they end."""
    from tpuctl.client.first_day import FirstDay

    with show_steps() as say:
        day = FirstDay(session, say, lambda finding: None if session.as_json else _show(finding))
        try:
            for number in sorted(set(stages)):
                _stage(session, day, number, yes=yes)
        finally:
            try:
                report.write_text(day.report())
                output.note(f"The report, without names and addresses: {report}")
            except OSError as error:
                output.note(f"The report could not be written to {report}: {error.strerror}")
    return day.findings


def _stage(session: Session, day: FirstDay, number: int, *, yes: bool) -> None:
    from tpuctl.cli.nodes.up import ask

    if number == 0:
        day.look()
        return
    if any(finding.state in (flow.FAILED, flow.SKIPPED) for finding in day.findings):
        day.skip(number, "an earlier stage has failed checks, or was not run")
        return
    plan = day.plan(number)
    try:
        more = {"in all": day.most(number, plan)}
        ask(session, plan, yes=yes, more=more, question=f"Stage {number}: create {plan.options.name}?")
    except DeclinedError as error:
        day.skip(number, f"{error.message} {error.hint}".strip())
        return
    day.run(number, plan)


def _show(finding: flow.Finding) -> None:
    output.hanging(f"{finding.check:<11}", finding.text, state=f"{flow.MARKS[finding.state]:<9}")
    for line in filter(None, finding.fix.split("\n")):
        printing.write(f"{'':<21} fix: {line}")  # holds a command


def _error(failed: Sequence[flow.Finding]) -> ConfigError | None:
    """Return the error that names the failed checks, with the fix of the first."""
    if not failed:
        return None
    kind = "failed" if any(finding.state == flow.FAILED for finding in failed) else "found a difference"
    count = f"{len(failed)} check{'s' if len(failed) > 1 else ''} {kind}"
    return ConfigError(f"{count}: {', '.join(finding.check for finding in failed)}.", hint=failed[0].fix)
