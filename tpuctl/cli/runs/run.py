"""The command run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tpuctl import accelerators
from tpuctl.cli import output
from tpuctl.cli.nodes.creation_options import Machine, machine_options, with_machine
from tpuctl.cli.nodes.lifetime_options import lifetime_options, with_net
from tpuctl.cli.nodes.zone_options import wait_option
from tpuctl.cli.runs.busy import policy_options
from tpuctl.cli.runs.outset import WholeRun
from tpuctl.cli.runs.steps import Steps
from tpuctl.cli.runs.submission_options import submission_options, with_request
from tpuctl.cli.session import (
    Session,
    cross_region_option,
    dry_run_option,
    reaching_options,
    with_zones,
    yes_option,
)
from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.client.runs.busy import Policy
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.runs.submission.plan import SubmitRequest
from tpuctl.flows.runs.whole.stage import new_name
from tpuctl.runs import check_name
from tpuctl.shells import again, with_options

OF_THE_HEADER = "header"
"""The value of --up without a type."""


class Types(click.ParamType[tuple[str, ...]]):
    """Accelerator types with commas between them; none for those of the script's header."""

    name = "types"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the API's names; raises UsageError for one that can be none, and for a script."""
        if isinstance(value, tuple) or value == OF_THE_HEADER:
            return value if isinstance(value, tuple) else ()
        if value.endswith(".py"):
            raise UsageError(
                f"'{value}' stands where the TPU type of --up does.",
                hint=f"Write: tpuctl run {value} --up v3-8",
            )
        names = filter(None, (part.strip() for part in value.split(",")))
        return tuple(dict.fromkeys(accelerators.accelerator(name).type for name in names))


@click.command()
@submission_options
@click.option(
    "--up", "types", metavar="[TYPE,...]", type=Types(), is_flag=False, flag_value=OF_THE_HEADER,
    help="Create a TPU for the run: the first TYPE with capacity; without a type that of the header.",
)  # fmt: skip
@click.option(
    "--down", "is_deleted", is_flag=True,
    help="Delete the TPU of --up at the end, also of a failure, once the results are here.",
)  # fmt: skip
@click.option("--to", "folder", type=OUTPUT_PATH, help="Folder for the results. [default: the run's name]")
@machine_options
@wait_option
@lifetime_options
@policy_options
@yes_option
@dry_run_option
@with_zones
@reaching_options
@cross_region_option
@with_machine
@with_request
def run(
    session: Session, machine: Machine, request: SubmitRequest, types: tuple[str, ...] | None,
    is_deleted: bool, folder: Path | None, zones: tuple[str, ...], wait_capacity: int, lifetime: Lifetime,
    policy: Policy, yes: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Run a script from nothing to its results: create a TPU, submit, follow, pull, and delete the TPU.

    Each step is done unless it is done already: the same command with the same --name continues after
    Ctrl-C or a kill, from any machine. Without --up it runs on a TPU that fits, as 'tpuctl submit' does.
    With --down its TPU deletes itself after an hour without use, if this command is gone (--idle, --ttl).
    The exit code is that of 'tpuctl wait'. It goes on if the reader of its output has gone (| head).

    \b
    Example:
      tpuctl run jobs/digits.py --up v3-8 --spot --down -- --epochs 30
    """
    _check(request, types, is_deleted=is_deleted)
    name = check_name(request.name) if request.name else new_name(request.script, session.now)
    typed = with_options(session.typed or ("run", str(request.script)), {"--name": name})
    whole = WholeRun(
        name, replace(request, name=name), typed, folder or Path(name), types, machine, zones,
        wait_capacity, with_net(lifetime) if is_deleted else lifetime, is_deleted, policy, yes,
        is_named=bool(request.name),
    )  # fmt: skip
    steps = Steps(session, whole)
    if dry_run:
        steps.show_plan()
        return
    if not request.name:
        output.note(f"Run '{name}'. After an interruption this continues it: {again(typed)}")
    steps.go()


def _check(request: SubmitRequest, types: tuple[str, ...] | None, *, is_deleted: bool) -> None:
    """Raise UsageError for options that contradict each other."""
    if types is None and is_deleted:
        raise UsageError(
            "--down deletes the TPU of --up, and there is no --up.",
            hint="Add --up TYPE; a TPU that you have is deleted by 'tpuctl down'.",
        )
    if types is not None and (request.tpu or request.accelerator):
        option = "--tpu" if request.tpu else "--accelerator"
        raise UsageError(
            f"--up creates a TPU, and {option} is for one that exists.", hint="Remove one of them."
        )
