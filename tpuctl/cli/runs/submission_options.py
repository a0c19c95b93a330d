"""What `submit` and `run` start, and the options that say what is sent to the hosts.

- The options that say how often a run is started again, on what machine, and with which values.
- Decides what a submission does about the runs that its TPU is busy with.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from tpuctl.cli import output, printing
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session
from tpuctl.cli.value_types import ACCELERATOR, DURATION, LOCAL_PATH
from tpuctl.client.runs import busy, requests
from tpuctl.client.runs.busy import QUEUE, REPLACE, BusyError, Policy
from tpuctl.errors import DeclinedError, UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.submission.environment import variables_of
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest
from tpuctl.images import FRAMEWORKS

Command = TypeVar("Command", bound=Callable[..., object])

RESTART_OPTIONS = (
    click.option(
        "--restarts", metavar="N",
        help="Start it again so often after a preemption, a maintenance or a lost host, or 'unlimited', the"
        " default on a spot TPU; 'tpuctl watch' does so. Default elsewhere: 0.",
    ),
    click.option(
        "--restarts-on-failure", metavar="N",
        help="Start it again so often after a failure of its own; default: 0.",
    ),
    click.option(
        "--restart-zone", "restart_zones", multiple=True, metavar="ZONE",
        help="Zone, region or 'any' for the TPU of a restart, after the zone of this one; repeatable.",
    ),
    click.option(
        "--max-price", metavar="AMOUNT",
        help="Restart it only on a TPU that costs no more per hour, such as 12.50.",
    ),
)  # fmt: skip


def value_options(environment_help: str, secret_help: str) -> Callable[[Command], Command]:
    """Give a command the options for values that a run's record does not have, with this help of two."""
    options = (
        click.option("--env", "environment", multiple=True, metavar="KEY[=VALUE]", help=environment_help),
        click.option(
            "--env-file",
            "env_files",
            multiple=True,
            type=LOCAL_PATH,
            help="File with lines KEY=VALUE, or KEY.",
        ),
        click.option("--secret", "secrets", multiple=True, metavar="KEY[=@FILE]", help=secret_help),
    )

    def give(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return give


queue_option = click.option(
    "--queue", "policy", flag_value=QUEUE, help="Wait in line for a TPU that is busy; no server is needed."
)
replace_option = click.option(
    "--replace",
    "policy",
    flag_value=REPLACE,
    help="Stop the run that the TPU is busy with, as 'tpuctl cancel' does, and start then.",
)

queue_timeout_option = click.option(
    "--queue-timeout",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Give up the place in line after so long, such as 6h: the run has failed then.",
)


def policy_options(command: Command) -> Command:
    """Give a command --queue, --queue-timeout and --replace, and pass it all as one Policy, `policy`."""

    @functools.wraps(command)
    def wrapper(*arguments: object, policy: str | None, queue_timeout: int, **parameters: object) -> object:
        if queue_timeout and policy != QUEUE:
            raise UsageError("--queue-timeout is for --queue.", hint="Add --queue.")
        return command(*arguments, policy=Policy(policy, queue_timeout), **parameters)

    return queue_option(queue_timeout_option(replace_option(wrapper)))  # type: ignore[return-value]  # stands for it


def on_free_node(session: Session, plan: SubmitPlan, policy: Policy, typed: Sequence[str]) -> SubmitPlan:
    """Return the plan for a free node, or to wait in line; a user at a terminal is asked about that.

    `typed` are the words of the command. Raises BusyError without a policy, DeclinedError for a no.
    """
    try:
        return busy.on_free_node(session, plan, policy, typed, output.note, show_steps)
    except BusyError as error:
        if plan.node.slices or not sys.stdin.isatty():
            raise
        output.note(error.message)
        if not printing.confirm("Wait in line for it (--queue)?"):
            raise DeclinedError("Declined: nothing was started.", hint=error.hint) from None
        return busy.in_line(plan)


class ProgramCommand(click.Command):
    """A command whose words after -- are arguments of the script, or without one a command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what is before --, as click does, and add what follows to `arguments`."""
        place = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:place])
        ctx.params["arguments"] = (*ctx.params.get("arguments", ()), *args[place + 1 :])
        return rest


def submission_options(command: Command) -> Command:
    """Give a command the script, its arguments, and the options that say what travels with it."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def with_request(command: Command) -> Command:
    """Pass a command with `submission_options` a SubmitRequest as last argument, in place of values."""
    names = inspect.signature(_request).parameters.keys() | {field.name for field in fields(SubmitRequest)}

    @functools.wraps(command)
    def wrapper(session: Session, *more: object, **parameters: Any) -> object:
        request = _request(session, **{name: parameters.pop(name) for name in names & parameters.keys()})
        return command(session, *more, request, **parameters)

    return wrapper  # type: ignore[return-value]  # the wrapper stands for the command


OPTIONS = (
    click.argument("script", type=LOCAL_PATH, required=False),
    click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
    click.option(
        "-m", "--module", metavar="MODULE", help="Run a module of the project, as 'python -m' does."
    ),
    click.option(
        "--root",
        type=LOCAL_PATH,
        metavar="DIR",
        help="Folder of the project, which is sent whole; by default the nearest with pyproject.toml,"
        " setup.py, setup.cfg or .git.",
    ),
    click.option("--name", help="Name of the run; by default SCRIPT-DATE-TIME."),
    click.option("--tpu", help="Node to run on; by default your only READY one of the type."),
    click.option("--accelerator", type=ACCELERATOR, help="Type to run on; overrides the script's header."),
    click.option("--dataset", help="NAME or NAME/VERSION; overrides the script's header."),
    click.option(
        "--include",
        multiple=True,
        type=LOCAL_PATH,
        help="More files or folders, also such as .gitignore names; what a project or a script needs is"
        " included.",
    ),
    click.option(
        "--env",
        "environment",
        multiple=True,
        metavar="KEY[=VALUE]",
        help="Environment variable of the script, KEY alone with its value in this shell; repeat it for more."
        " Its value is not stored in the bucket.",
    ),
    click.option(
        "--env-file",
        "env_files",
        multiple=True,
        type=LOCAL_PATH,
        help="File with lines KEY=VALUE, or KEY for its value in this shell; --env overrides it.",
    ),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="KEY[=@FILE]",
        help="Variable with its value in this shell or in a file: never on a command line, and never stored.",
    ),
    click.option(
        "--store-env",
        "stored",
        multiple=True,
        metavar="KEY",
        help="Store the value of this variable in the run's record; repeat it for more.",
    ),
    click.option(
        "--python", help="Version of Python for the script, such as 3.12; overrides the script's header."
    ),
    click.option(
        "--extra",
        "extras",
        multiple=True,
        help="Extra of the project's pyproject.toml that hosts install, too.",
    ),
    click.option(
        "--group",
        "groups",
        multiple=True,
        help="Dependency group of the project's pyproject.toml that hosts install, too.",
    ),
    click.option(
        "--allow-index",
        "indexes",
        multiple=True,
        metavar="URL",
        envvar="TPUCTL_ALLOW_INDEX",
        help="Let packages come from this index or page, too, where the project's files say so.",
    ),
    click.option(
        "--wheelhouse",
        type=LOCAL_PATH,
        help="Folder of wheels below the script's: hosts, which may be offline, install from nowhere else.",
    ),
    click.option(
        "--code-limit",
        type=click.IntRange(1),
        default=bundles.LIMIT // 1_000_000,
        metavar="MB",
        show_default=True,
        help="Most megabytes of the script's files.",
    ),
    click.option(
        "--framework",
        type=click.Choice(FRAMEWORKS),
        help="Decides which hosts run the program, and what they install; by default as in its header, its"
        " requirements, or what it imports.",
    ),
    click.option(
        "--setup",
        metavar="COMMAND",
        help="Command for sh that each host runs before the script, in its folder; overrides the header's.",
    ),
    click.option(
        "--setup-timeout", type=DURATION, default="30m", show_default=True, help="Time limit of --setup."
    ),
    *RESTART_OPTIONS,
)


def _request(
    session: Session, script: Path | None, arguments: tuple[str, ...], module: str | None,
    environment: tuple[str, ...], env_files: tuple[Path, ...], secrets: tuple[str, ...],
    stored: tuple[str, ...], python: str | None, code_limit: int, restarts: str | None,
    restarts_on_failure: str | None, restart_zones: tuple[str, ...], max_price: str | None, **same: Any,
) -> SubmitRequest:  # fmt: skip
    """Return what the options ask for; `same` are those that are fields of the request as they are."""
    variables = variables_of(environment, env_files, secrets, stored, os.environ)
    program, kind, arguments = requests.program(script, module, arguments)
    return SubmitRequest(
        script=program,
        kind=kind,
        arguments=arguments,
        defaults=session.config.run,
        environment=variables,
        stored=stored,
        python=python or "",
        python_archives=requests.python_archives(session),
        code_limit=code_limit * 1_000_000,
        secrets=tuple(pair.partition("=")[0] for pair in secrets),
        restarts=requests.restart_request(session, restarts, restarts_on_failure, restart_zones, max_price),
        **same,
    )
