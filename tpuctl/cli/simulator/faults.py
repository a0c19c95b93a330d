"""The commands sim fault add, ls and rm.

- Builds the command `sim fault add KIND` of each kind of fault, with options from the table of kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from tpuctl import faults
from tpuctl.cli import output, printing
from tpuctl.cli.groups import CONTEXT, Group
from tpuctl.cloud import simulator
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator.process import ActiveFault, ControlClient
from tpuctl.errors import StateError, UsageError


class _ForwardOptions(click.Command):
    """Passes everything after its first argument to the command of that kind of fault."""

    allow_interspersed_args = False
    ignore_unknown_options = True


@click.group(cls=Group)
def fault() -> None:
    """Inject faults: stockouts, preemptions, broken hosts, a bucket that answers 503.

    A fault ends when its count is used up, its duration is over or it is removed. It survives a restart of
    the simulator. docs/faults.md lists all kinds.
    """


@fault.command(cls=_ForwardOptions, add_help_option=False, options_metavar="")
@click.argument("kind", required=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def add(ctx: click.Context, kind: str | None, options: tuple[str, ...]) -> None:
    """Add a fault; 'tpuctl sim fault add KIND --help' shows the options of a kind.

    \b
    Example:
      tpuctl sim fault add unavailable --method CreateNode --when after --count 1
      tpuctl sim fault add preemption --run 'digits-*' --step 200
      tpuctl sim fault add stockout --zone europe-west4-a --count 2
    """
    if kind is None or kind in ("--help", "-h"):
        printing.write_block(help_text(ctx))
        return
    if kind.startswith("-"):
        raise UsageError("The kind of fault comes first.", hint="tpuctl sim fault add KIND [OPTIONS]")
    command = command_of(faults.kind_of(kind), _add)
    command.main(list(options), prog_name=f"tpuctl sim fault add {kind}", standalone_mode=False)


@fault.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def list_faults(as_json: bool) -> None:
    """List the faults that are in force or waiting, and how often each has fired.

    \b
    Example:
      tpuctl sim fault ls
    """
    active = _control().faults()
    if as_json:
        output.json({"faults": active})
    elif active:
        show_faults(active)
    else:
        output.note("There are no faults.")


@fault.command("rm")
@click.argument("ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Remove every fault.")
def remove(ids: tuple[str, ...], everything: bool) -> None:
    """Remove faults by their ids: operations that they delay resume, and hosts that they broke recover.

    \b
    Example:
      tpuctl sim fault rm f1
    """
    if everything == bool(ids):
        hint = "'tpuctl sim fault ls' lists them."
        raise UsageError("Name faults by their ids, or all of them with --all.", hint=hint)
    control = _control()
    if everything:
        control.clear()
        output.note("Removed every fault.")
    for identifier in ids:
        control.remove(identifier)
        output.note(f"Removed {identifier}.")


def show_faults(active: Sequence[ActiveFault], *, err: bool = False) -> None:
    """Print a table of faults."""
    output.table(("ID", "KIND", "OPTIONS", "STATE", "FIRED", "LEFT", "FROM"), map(_row, active), err=err)


def _row(active: ActiveFault) -> tuple[object, ...]:
    options = " ".join(f"{name}={value}" for name, value in active.options.items())
    remaining = "-" if active.left is None else active.left
    return (active.id, active.kind, options, active.state, active.taken, remaining, active.origin)


def _add(request: faults.Request, as_json: bool) -> None:
    simulator.ensure(simulator_folder())
    added = ControlClient(simulator_folder()).add([request])
    if as_json:
        output.json({"faults": added})
        return
    show_faults(added)
    for active in added:
        output.hint(f"tpuctl sim fault rm {active.id}")


def _control() -> ControlClient:
    folder = simulator_folder()
    if simulator.running(folder) is None:
        raise StateError("The simulator is not running.", hint="Start it: tpuctl sim start")
    return ControlClient(folder)


Add = Callable[[faults.Request, bool], None]
"""Adds a fault and shows it, as JSON or as text."""
_LONGEST_METAVAR = 40


def command_of(kind: faults.Kind, add: Add) -> click.Command:
    """Return the command that adds a fault of one kind."""
    options = [_option(field, _default(kind, field)) for field in (*kind.fields, *faults.LIMITS)]
    as_json = click.Option(["--json", "as_json"], is_flag=True, help="Show the result as JSON.")
    text = f"{kind.help}\n\n{kind.note}\n\n\b\nExample:\n  tpuctl sim fault add {kind.name} {kind.example}"

    def callback(as_json: bool, **values: str | None) -> None:
        add(faults.request(kind.name, values, _flag), as_json)

    return click.Command(
        kind.name, context_settings=CONTEXT, params=[*options, as_json], callback=callback, help=text
    )


def help_text(context: click.Context) -> str:
    """Return the help of `sim fault add` with all kinds, by section."""
    formatter = context.make_formatter()
    kinds = faults.KINDS.values()
    for section in dict.fromkeys(kind.section for kind in kinds):
        with formatter.section(section):
            formatter.write_dl([(kind.name, kind.help) for kind in kinds if kind.section == section])
    return f"{context.get_help()}\n\n{formatter.getvalue()}"


def _default(kind: faults.Kind, field: faults.Field) -> str:
    """The default that the help shows, '' for none."""
    if field.name == "count":
        return str(kind.count or "unlimited")
    return "" if field.default in (None, "*", "", {}) else str(field.default)


def _option(field: faults.Field, default: str) -> click.Option:
    names = [_flag(field.name), field.name]
    if field.type == "flag":
        return click.Option(names, is_flag=True, default=None, help=field.help)
    metavar, text = _choices(field)
    text = f"{text}  [default: {default}]" if default else text
    return click.Option(names, metavar=metavar, help=text, required=field.required)


def _choices(field: faults.Field) -> tuple[str, str]:
    """The metavar and the help of an option; many choices are listed in the help, which is folded."""
    if len(field.metavar) <= _LONGEST_METAVAR:
        return field.metavar, field.help
    return field.name.upper(), f"{field.help}: {field.metavar.replace('|', ', ')}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
