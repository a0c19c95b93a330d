"""The command resubmit."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tpuctl.cli.runs.busy import policy_options
from tpuctl.cli.runs.restart_options import value_options
from tpuctl.cli.runs.submit import start_planned
from tpuctl.cli.session import Session, cross_region_option, dry_run_option, reaching_options, with_session
from tpuctl.client.runs import steps, submission
from tpuctl.client.runs.busy import Policy
from tpuctl.flows.runs.record.repetition import RepeatRequest
from tpuctl.flows.runs.submission.environment import variables_of


@click.command()
@click.argument("run")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--on", "tpu", metavar="NODE", help="Node to run on; by default your only READY one of the type."
)
@click.option("--name", help="Name of the new run; by default SCRIPT-DATE-TIME.")
@click.option(
    "--all-arguments", "is_all", is_flag=True,
    help="Take what is after -- for all arguments of the script, not for changes.",
)  # fmt: skip
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
    context = session.context
    values = variables_of(environment, env_files, secrets, (), os.environ)
    names = tuple(pair.partition("=")[0] for pair in secrets)
    request = RepeatRequest(name, tpu, changes, is_all, values, names)
    plan = submission.plan_again(context, steps.find(context, run), request)
    start_planned(session, plan, policy, dry_run=dry_run)
