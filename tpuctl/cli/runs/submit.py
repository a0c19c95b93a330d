"""The commands submit and resubmit."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from tpuctl.cli import output
from tpuctl.cli.progress import show_late_count
from tpuctl.cli.runs.submission_options import (
    ProgramCommand,
    on_free_node,
    policy_options,
    submission_options,
    value_options,
    with_request,
)
from tpuctl.cli.session import Session, cross_region_option, dry_run_option, reaching_options, with_session
from tpuctl.client.context import Context
from tpuctl.client.runs import steps, submission
from tpuctl.client.runs.busy import Policy
from tpuctl.errors import InterruptedByUser, TpuctlError, joined_hints, saying_bill
from tpuctl.flows.nodes.lookup import NoTpuError
from tpuctl.flows.runs.code.bundles import Bundle, Report
from tpuctl.flows.runs.record.repetition import RepeatRequest
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.environment import variables_of
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest
from tpuctl.flows.runs.submission.submit import Submission
from tpuctl.printable import ranges
from tpuctl.runs import Run
from tpuctl.shells import again


@click.command(cls=ProgramCommand)
@submission_options
@click.option(
    "--attach/--detach",
    "-a/-d",
    "is_attached",
    default=False,
    help="Follow the log until the run ends, as 'tpuctl logs -f' does, or return at once; default: --detach.",
)
@policy_options
@dry_run_option
@with_session
@reaching_options
@cross_region_option
@with_request
def submit(
    session: Session, request: SubmitRequest, is_attached: bool, policy: Policy, dry_run: bool
) -> None:
    """Copy a project to a TPU and start a script, a module, a notebook or a command of it, detached.

    The project is the nearest folder with pyproject.toml, setup.py, setup.cfg or .git: what git has, or does
    not ignore, is copied. Without one, a script travels with the modules that it imports from its folder.
    Arguments after -- are passed on; {TPUCTL_MODEL_DIR} in them is the run's folder in the bucket.

    \b
    Example:
      tpuctl submit jobs/digits.py -- --epochs 30
      tpuctl submit -m package.train -- --workdir {TPUCTL_MODEL_DIR}
      tpuctl submit run.sh
      tpuctl submit -- python train.py --epochs 30
    """
    with ExitStack() as made:
        with show_late_count() as report:
            plan = _plan(session, request, report, None if dry_run else made)
        start_planned(session, plan, policy, is_attached=is_attached, dry_run=dry_run)


def start_planned(
    session: Session, plan: SubmitPlan, policy: Policy, *, is_attached: bool = False, dry_run: bool = False
) -> None:
    """Start a planned run and show it, or show the requests."""
    for text in plan.notes:
        output.note(text)
    if dry_run:
        show_settings(session, plan)
        output.requests(submission.requests(session, plan), as_json=session.as_json)
        return
    plan = on_free_node(session, plan, policy, session.typed)
    plan = submission.admit(session, plan, output.note)
    try:
        with show_late_count() as report:
            started = submission.start(session, plan, output.note, report)
    except TpuctlError as error:
        lost = _to_be_restarted(session, error) if is_attached else None
        if lost is None:
            raise
        output.note(error.message)
        started = Submission(lost.record, ())
    for text in started.notes:
        output.note(text)
    name = started.run.run
    session.listed.add("runs", name)
    try:
        _show(session, started.run, plan, is_attached=is_attached)
        if is_attached:
            from tpuctl.cli.runs.logs import attach  # slow to import, and not always needed

            attach(session, steps.named(session, name))
    except (KeyboardInterrupt, InterruptedByUser) as interrupt:
        if isinstance(interrupt, InterruptedByUser) and interrupt.facts.get("may_bill"):
            raise  # it says what was being made or deleted
        from tpuctl.flows.runs.control.cancel import next_steps

        raise InterruptedByUser(f"Interrupted; run '{name}' goes on.", hint=next_steps(name)) from interrupt


def _to_be_restarted(context: Context, error: TpuctlError) -> StoredRun | None:
    """Return the run whose node was lost while it was started, if it is to be started again."""
    name = error.facts.get("run")
    run = steps.named(context, name) if isinstance(name, str) else None
    verdict = run.verdict() if run else None
    return run if verdict and verdict.restarts else None


def _plan(session: Session, request: SubmitRequest, report: Report, made: ExitStack | None) -> SubmitPlan:
    """Plan the run; where no TPU fits, a user at a terminal is asked whether to create one.

    Whatever ends `made` after that says what bills; without it nobody is asked.
    """
    try:
        return submission.plan(session, request, report)
    except NoTpuError as error:
        if made is None or session.as_json or not sys.stdin.isatty():
            raise
        from tpuctl.cli.nodes.up import up  # slow to import, and rarely needed

        output.note(error.message)
        given = click.get_current_context().params
        options = [word for name in _PLACES if given.get(name) for word in (f"--{name}", str(given[name]))]
        if given.get("iap") is not None:
            options.append("--iap" if given["iap"] else "--no-iap")
        options += ["--cross-region"] * bool(given.get("cross_region"))
        if given.get("host_keys"):
            options += ["--host-keys", given["host_keys"]]
        tpu = up.main([error.accelerator, *options], "tpuctl up", standalone_mode=False)
        commands = joined_hints(f"Use it: {again(session.typed)}", f"Delete it: {tpu.deletion}")
        made.enter_context(saying_bill(tpu.name, tpu.zone, commands))
        return submission.plan(session, request, report)


_PLACES = ("target", "project", "zone", "bucket")
"""Options that submit and up share."""


def _show(session: Session, run: Run, plan: SubmitPlan, *, is_attached: bool) -> None:
    attempt, code = plan.attempt, plan.code
    content = {
        "run": run.run,
        "on": f"{attempt.tpu.name} ({attempt.tpu.size}, {attempt.tpu.zone})",
        "workers": ranges(attempt.workers),
        "dataset": str(run.dataset or "none"),
        "code": f"{run.bundle_sha256[:12]} ({_size(code)})",
    }
    if run.origin:
        content["repeats"] = run.origin
    if session.as_json:
        write = output.json_line if is_attached else output.json
        write(content)
        return
    output.facts(content, err=is_attached)
    if not is_attached:
        output.hint("tpuctl logs -f")


def show_settings(session: Session, plan: SubmitPlan) -> None:
    """Show what would run, how much is sent, and where each setting comes from."""
    if plan.settings and not session.as_json:
        facts = {"sends": f"{_size(plan.code)} ({plan.code.sha256[:12]})"}
        output.facts({**plan.settings, **facts}, err=True)


def _size(code: Bundle) -> str:
    return f"{code.count} file{'s' if code.count > 1 else ''}, {output.format_bytes(code.files_size)}"


# The command resubmit.


@click.command()
@click.argument("run")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--on", "tpu", metavar="NODE", help="Node to run on; by default your only READY one of the type."
)
@click.option("--name", help="Name of the new run; by default SCRIPT-DATE-TIME.")
@click.option(
    "--all-arguments",
    "is_all",
    is_flag=True,
    help="Take what is after -- for all arguments of the script, not for changes.",
)
@value_options(
    "Another value of a variable, one more variable, or a value that is not stored; repeatable.",
    "Value of a secret variable from this shell or a file: never on a command line.",
)
@policy_options
@dry_run_option
@with_session
@reaching_options
@cross_region_option
def resubmit(
    session: Session, run: str, changes: tuple[str, ...], tpu: str | None, name: str | None, is_all: bool,
    environment: tuple[str, ...], env_files: tuple[Path, ...], secrets: tuple[str, ...], policy: Policy,
    dry_run: bool,
) -> None:  # fmt: skip
    """Start a run again as a new one: the same code, arguments, packages, data and variables.

    All comes from the bucket: neither the script nor the machine that submitted it is needed. Arguments
    after -- change those of the run: --lr 0.1 replaces the value of --lr, or is added.

    \b
    Example:
      tpuctl resubmit digits-20260131-120000
      tpuctl resubmit digits-20260131-120000 --on big -- --lr 0.1
    """
    values = variables_of(environment, env_files, secrets, (), os.environ)
    names = tuple(pair.partition("=")[0] for pair in secrets)
    request = RepeatRequest(name, tpu, changes, is_all, values, names)
    plan = submission.plan_again(session, steps.find(session, run), request)
    start_planned(session, plan, policy, dry_run=dry_run)
