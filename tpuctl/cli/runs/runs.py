"""The command runs."""

from __future__ import annotations

import click

from tpuctl import clock
from tpuctl.cli import output
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.runs.summaries import summaries
from tpuctl.runs import FAILED


@click.command()
@with_session
def runs(session: Session) -> None:
    """List runs, the newest last, and how they ended.

    \b
    Example:
      tpuctl runs
    """
    listed = summaries(session.cloud.bucket, session.witnesses, session.warn)
    session.listed.replace("runs", (run.run for run in listed))
    if session.as_json:
        output.json({"runs": listed})
        return
    rows = [
        (run.run, run.accelerator, run.state, run.dataset, clock.age(run.created, session.now))
        for run in listed
    ]
    output.table(("RUN", "TYPE", "STATE", "DATASET", "AGE"), rows)
    if not rows:
        output.note(f"There are no runs in gs://{session.cloud.bucket.name}.")
        output.hint("tpuctl submit SCRIPT")
    elif listed[-1].state == FAILED:
        output.hint(f"tpuctl logs {listed[-1].run} --tail 20")
