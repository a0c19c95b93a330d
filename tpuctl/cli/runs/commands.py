"""submit, logs, runs, pull."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from tpuctl import clock
from tpuctl.cli import output
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.flows.runs import logs as log_flow
from tpuctl.flows.runs import outcome as verdicts
from tpuctl.flows.runs import pull as collect
from tpuctl.flows.runs import submit as submit_flow
from tpuctl.flows.runs import summaries as run_flow
from tpuctl.runs import Verdict


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--name", help="Name of the run; by default SCRIPT-DATE-TIME.")
@click.option("--tpu", help="Node to run on; by default your only READY one of the type.")
@click.option("--accelerator", help="Type to run on; overrides the script's header.")
@click.option("--dataset", help="NAME or NAME/VERSION; overrides the script's header.")
@click.option(
    "--include",
    multiple=True,
    type=click.Path(path_type=Path),
    help="More files beside the script; what it imports comes along.",
)
@click.option(
    "--env", "environment", multiple=True, metavar="KEY=VALUE", help="Set in the script's environment."
)
@dry_run_option
@with_session
def submit(
    session: Session, script: Path, arguments: tuple[str, ...], name: str | None, tpu: str | None,
    accelerator: str | None, dataset: str | None, include: tuple[Path, ...], environment: tuple[str, ...],
    dry_run: bool,
) -> None:  # fmt: skip
    """Ship a training script to a TPU and start it there, detached.

    The modules beside it that it imports go with it. What follows -- goes to the script.

    \b
    Example:
      tpuctl submit jobs/digits.py -- --epochs 30
    """
    added = submit_flow.parse_environment(environment)
    wanted = submit_flow.Wanted(script, arguments, include, name, tpu, accelerator, dataset, added)
    cloud = session.cloud
    planned = submit_flow.plan(cloud.data_bucket, cloud.tpu, cloud.ssh, wanted, session.now)
    if dry_run:
        output.requests(submit_flow.requests(cloud.bucket, planned), as_json=session.as_json)
        return
    submit_flow.start(cloud.bucket, cloud.tpu, cloud.ssh, planned)
    _show_started(session, planned)


@click.command()
@click.argument("run", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended; 100 if it failed.")
@click.option("--worker", type=click.IntRange(min=0), help="Only this worker.")
@with_session
def logs(session: Session, run: str | None, follow: bool, worker: int | None) -> None:
    """Show a run's logs (the last run's), also after the TPU is gone.

    \b
    Example:
      tpuctl logs -f
    """
    cloud = session.cloud
    name = run or verdicts.latest_run(cloud.bucket)
    attempt = verdicts.last_attempt(cloud.bucket, name)
    reader = log_flow.LogReader(cloud.bucket, name, attempt, worker)
    print_line = _printer(session, many=len(attempt.workers) > 1 and worker is None)
    if not follow:
        for line in [*reader.lines(), *reader.rest()]:
            print_line(line)
        return
    _leave(log_flow.follow(cloud.bucket, cloud.tpu, name, reader, print_line))


@click.command()
@with_session
def runs(session: Session) -> None:
    """List runs, the newest last, and how they ended.

    \b
    Example:
      tpuctl runs
    """
    cloud = session.cloud
    found = run_flow.summaries(cloud.bucket, cloud.tpu, session.now)
    if session.as_json:
        output.json({"runs": found})
        return
    rows = [
        (one.run, one.accelerator, one.state, one.dataset, clock.age(one.created, session.now))
        for one in found
    ]
    output.table(("RUN", "TYPE", "STATE", "DATASET", "AGE"), rows)


@click.command()
@click.argument("run", required=False)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Folder; by default the run's name.")
@with_session
def pull(session: Session, run: str | None, folder: Path | None) -> None:
    """Fetch a run's committed checkpoints, logs and records, each verified by its checksum.

    \b
    Example:
      tpuctl pull --to ./result
    """
    bucket = session.cloud.bucket
    name = run or verdicts.latest_run(bucket)
    with show_steps() as tell:
        ended = verdicts.settle(bucket, session.cloud.tpu, name, session.now)
        pulled = collect.pull(bucket, name, folder or Path(name), tell)
    _show_pulled(session, name, pulled, ended=ended is not None)


def _show_started(session: Session, planned: submit_flow.SubmitPlan) -> None:
    run, attempt = planned.run, planned.attempt
    content = {
        "run": run.run,
        "on": f"{attempt.tpu.name} ({attempt.tpu.accelerator}, {attempt.tpu.zone})",
        "workers": ", ".join(map(str, attempt.workers)),
        "dataset": f"{run.dataset.name}/{run.dataset.version}" if run.dataset else "none",
        "code": run.bundle_sha256[:12],
    }
    if session.as_json:
        output.json(content)
        return
    output.facts(content)
    output.hint("tpuctl logs -f")


def _printer(session: Session, *, many: bool) -> Callable[[log_flow.Line], None]:
    if session.as_json:
        return lambda line: print(output.json_line({"worker": line.worker, "text": line.text}), flush=True)
    if many:
        return lambda line: print(f"[{line.worker}] {line.text}", flush=True)
    return lambda line: print(line.text, flush=True)


def _leave(verdict: Verdict) -> None:
    """End with the run's own outcome."""
    error = verdicts.error_of(verdict)
    if error:
        raise error
    output.note(f"Run '{verdict.run}' {verdict.outcome}.")
    output.hint(f"tpuctl pull {verdict.run}")


def _show_pulled(session: Session, run: str, pulled: collect.Pulled, *, ended: bool) -> None:
    if session.as_json:
        output.json({"run": run, "folder": str(pulled.folder), "files": pulled.files, "bytes": pulled.size,
                   "kept": pulled.kept, "uncommitted": list(pulled.uncommitted), "ended": ended})  # fmt: skip
        return
    kept = f", {pulled.kept} of them here already" if pulled.kept else ""
    content: dict[str, object] = {
        "run": run,
        "files": f"{pulled.files} ({output.format_bytes(pulled.size)}), checksums right{kept}",
        "where": pulled.folder,
    }
    if pulled.uncommitted:
        content["left out"] = f"{len(pulled.uncommitted)} files of unfinished checkpoints"
    output.facts(content)
    if ended:
        output.hint("tpuctl down")
        return
    output.note(f"Run '{run}' goes on: this is what is there so far.")
    output.hint(f"tpuctl logs -f {run}")
