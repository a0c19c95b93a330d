"""The command run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from tpuctl import accelerators
from tpuctl.cli import output
from tpuctl.cli.nodes.creation_options import (
    Machine,
    lifetime_options,
    machine_options,
    names_an_end,
    wait_option,
    warn_of_secrets,
    with_machine,
)
from tpuctl.cli.nodes.up import ask, show_plan
from tpuctl.cli.progress import show_late_count, show_steps
from tpuctl.cli.runs.logs import follow_to_end
from tpuctl.cli.runs.submission_options import (
    ProgramCommand,
    on_free_node,
    policy_options,
    submission_options,
    with_request,
)
from tpuctl.cli.runs.submit import show_settings
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
from tpuctl.client.runs.whole import Ending, Steps, WholeRun
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.runs import outcome
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest
from tpuctl.flows.runs.whole import new_name
from tpuctl.runs import Verdict, check_name
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


@click.command(cls=ProgramCommand)
@submission_options
@click.option(
    "--up", "types", metavar="[TYPE,...]", type=Types(), is_flag=False, flag_value=OF_THE_HEADER,
    help="Create a TPU for the run: the first TYPE with capacity; without a type that of the header.",
)  # fmt: skip
@click.option(
    "--down",
    "is_deleted",
    is_flag=True,
    help="Delete the TPU of --up at the end, also of a failure, once the results are here.",
)
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
    name = check_name(request.name) if request.name else new_name(request, session.time)
    typed = with_options(session.typed or ("run", str(request.script)), {"--name": name})
    whole = WholeRun(
        run=name,
        request=replace(request, name=name),
        typed=typed,
        folder=folder or Path(name),
        types=types,
        machine=machine,
        zones=zones,
        wait=wait_capacity,
        lifetime=lifetime if names_an_end() else None,
        is_deleted=is_deleted,
        policy=policy,
        is_named=bool(request.name),
    )
    steps = Steps(session, whole, Screen(session, whole, yes=yes))
    if dry_run:
        output.requests(steps.requests(), as_json=session.as_json)
        return
    ending = steps.go()
    session.listed.remove("nodes", ending.deleted)
    _show_end(session, ending)


class Screen:
    """Shows the steps on the terminal, and asks the user."""

    note = staticmethod(output.note)
    steps = staticmethod(show_steps)
    count = staticmethod(show_late_count)

    def __init__(self, session: Session, whole: WholeRun, *, yes: bool) -> None:
        self._session = session
        self._whole = whole
        self._yes = yes

    def show_node(self, plan: UpPlan) -> None:
        """Show what a dry run would create, and what it costs."""
        warn_of_secrets(plan.options)
        show_plan(self._session, plan, self._facts)

    def show_run(self, plan: SubmitPlan) -> None:
        """Show what would run, and where each setting comes from."""
        show_settings(self._session, plan)

    def admit_node(self, plan: UpPlan) -> None:
        """Show what is created, and ask; raises DeclinedError."""
        end = ", and delete it afterwards" if self._whole.is_deleted else ""
        question = f"Create {plan.options.name}, run {self._whole.request.script} there{end}?"
        warn_of_secrets(plan.options)
        ask(self._session, plan, yes=self._yes, more=self._facts, question=question)

    @property
    def _facts(self) -> Mapping[str, str]:
        """What is shown besides the node that is made."""
        end = "is deleted" if self._whole.is_deleted else "stays, and bills, until 'tpuctl down'"
        return {
            "run": f"{self._whole.run}: {self._whole.request.script}",
            "results": str(self._whole.folder),
            "afterwards": f"the TPU {end}",
        }

    def on_free_node(self, plan: SubmitPlan) -> SubmitPlan:
        """Return the plan for a free node, or to wait in line; a user at a terminal is asked about that."""
        return on_free_node(self._session, plan, self._whole.policy, self._whole.typed)

    def follow(self, run: StoredRun) -> Verdict:
        """Show the log until the run ends, and return how it ended."""
        return follow_to_end(self._session, run)

    def begins(self) -> None:
        """Say how to continue a run whose name the user does not know."""
        if not self._whole.is_named:
            command = again(self._whole.typed)
            output.note(f"Run '{self._whole.run}'. After an interruption this continues it: {command}")

    def made(self, kind: str, name: str) -> None:
        """Keep a name for the shell's completion."""
        self._session.listed.add(kind, name)


def _show_end(session: Session, ending: Ending) -> None:
    """Say how it ended, what is here, and what bills; raises the error of a run that did not succeed."""
    verdict, pulled = ending.verdict, ending.pulled
    if session.as_json:
        output.json_line({
            "run": verdict.run, "outcome": verdict.outcome, "evidence": verdict.evidence,
            "exit_code": verdict.exit_code, "folder": str(pulled.folder), "files": pulled.files,
            "bytes": pulled.size, "uncommitted": list(pulled.uncommitted), "deleted": list(ending.deleted),
            "kept": ending.kept,
        })  # fmt: skip
    else:
        _show_files(ending)
    error = outcome.error_of(verdict)
    if error:
        raise error
    output.note(outcome.success_of(verdict))


def _show_files(ending: Ending) -> None:
    pulled = ending.pulled
    content: dict[str, object] = {
        "files": f"{pulled.files} ({output.format_bytes(pulled.size)}), verified",
        "where": pulled.folder,
    }
    if pulled.uncommitted:
        content["skipped"] = f"{len(pulled.uncommitted)} files of unfinished checkpoints"
    output.facts(content, err=True)
    if ending.deleted:
        output.note(f"Deleted {', '.join(ending.deleted)}.")
    if ending.kept:
        output.note(ending.kept)
