"""The command doctor."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tpuctl.cli import output, printing
from tpuctl.cli.session import Session, with_session
from tpuctl.errors import ConfigError
from tpuctl.flows.project import doctor as flow

MARKS = {flow.OK: "ok", flow.WARNING: "warning", flow.FAILED: "FAILED", flow.SKIPPED: "skipped"}


@click.command()
@with_session
def doctor(session: Session) -> None:
    """Check packages, credentials, project, API, zone, buckets, network and SSH key, in this order.

    After 'tpuctl init --from-terraform', also compare the settings with Terraform's outputs.

    \b
    Example:
      tpuctl doctor
    """
    session.announce()
    findings = []
    for finding in flow.examine(session.config, lambda: session.cloud):
        findings.append(finding)
        if not session.as_json:
            _show(finding)
    error = _error([finding for finding in findings if finding.state == flow.FAILED])
    if error:
        error.result = {"checks": findings}
        raise error
    if session.as_json:
        output.json({"checks": findings})
    output.hint("tpuctl up v3-8")


def _show(finding: flow.Finding) -> None:
    output.hanging(f"{finding.check:<11}", finding.text, state=f"{MARKS[finding.state]:<9}")
    for line in filter(None, finding.fix.split("\n")):
        printing.write(f"{'':<21} fix: {line}")  # holds a command


def _error(failed: Sequence[flow.Finding]) -> ConfigError | None:
    """Return the error that names the failed checks, with the fix of the first."""
    if not failed:
        return None
    count = f"{len(failed)} check{'s' if len(failed) > 1 else ''} failed"
    return ConfigError(f"{count}: {', '.join(finding.check for finding in failed)}.", hint=failed[0].fix)
