"""The command export."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl.cli import output
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import LocalPath
from tpuctl.client.runs import steps
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.runs.record import export as flow
from tpuctl.flows.runs.state import RunState
from tpuctl.shells import quoted_path


@click.command()
@click.argument("run")
@click.option("--to", "path", type=LocalPath(), metavar="FILE", help="The archive; default: RUN.tar.gz.")
@click.option("--with-data", is_flag=True, help="Put the dataset into the archive.")
@with_session
def export(session: Session, run: str, path: Path | None, with_data: bool) -> None:
    """Write one archive of a run that somebody without your bucket can run.

    It has the code, the arguments, the versions of all packages, the checksums of the results, and a README
    with the commands. Values of variables and arguments that look like secrets are not in it. The same run
    gives the same bytes.

    \b
    Example:
      tpuctl export digits-20260131-120000 --to digits.tar.gz --with-data
    """
    stored = steps.find(session.context, run)
    place = path or Path(f"{stored.name}.tar.gz")
    if place.exists():
        raise UsageError(f"There is a file {place} already.", hint="Name another one: --to FILE")
    stored.record  # noqa: B018  read for its error
    verdict = _ended(stored.name, steps.state(session.context, stored)).verdict
    assert verdict
    with show_steps() as report:
        written = flow.export(stored, verdict, session.cloud.data_bucket, place, report, with_data=with_data)
    _show(session, stored.name, written)


def _ended(run: str, state: RunState) -> RunState:
    if state.error:
        raise state.error
    if state.verdict is None or state.verdict.restarts:
        raise StateError(f"Run '{run}' has not ended.", hint=f"tpuctl wait {run}", run=run)
    return state


def _show(session: Session, run: str, written: flow.Export) -> None:
    if session.as_json:
        output.json({
            "run": run, "file": str(written.path), "bytes": written.size, "sha256": written.sha256,
            "files": written.files, "has_data": written.has_data, "missing": list(written.missing),
        })  # fmt: skip
        return
    output.facts({
        "run": run,
        "file": written.path,
        "size": f"{output.format_bytes(written.size)}, {written.files} files",
        "sha256": written.sha256,
    })  # fmt: skip
    if written.missing:
        output.note(f"Not in it, and named in its README.md: {', '.join(written.missing)}.")
    output.hint(f"tar -xzf {quoted_path(str(written.path))} && less {run}/README.md")
