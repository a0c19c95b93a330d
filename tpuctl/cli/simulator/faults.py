"""sim fault add, ls and rm; sim events: rehearse what goes wrong, and see what happened."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tpuctl import faults
from tpuctl.cli import output
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator import process as embedded
from tpuctl.cloud.simulator.control import Control
from tpuctl.cloud.simulator.event_log import Event, EventLog, shown
from tpuctl.errors import StateError, UsageError


class _OptionsOfAKind(click.Command):
    """Leaves everything behind its first argument to the command of that kind."""

    allow_interspersed_args = False
    ignore_unknown_options = True


@click.group()
def fault() -> None:
    """Faults on demand: stockouts, preemptions, broken hosts, a bucket that answers 503.

    Those asked for stay, also over a restart of the simulator, until their count or time is up or they are
    removed. docs/faults.md has them all.
    """


@fault.command(cls=_OptionsOfAKind, add_help_option=False, options_metavar="")
@click.argument("kind", required=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def add(ctx: click.Context, kind: str | None, options: tuple[str, ...]) -> None:
    """Ask for a fault; 'tpuctl sim fault add KIND --help' shows the options of a kind.

    \b
    Example:
      tpuctl sim fault add unavailable --method CreateNode --when after --count 1
      tpuctl sim fault add preemption --run 'digits-*' --step 200 --notice 10
      tpuctl sim fault add stockout --zone europe-west4-a --count 2
    """
    if kind is None or kind in ("--help", "-h"):
        click.echo(_kinds_help(ctx))
        return
    if kind.startswith("-"):
        raise UsageError("The kind of fault comes first.", hint="tpuctl sim fault add KIND [OPTIONS]")
    known = faults.kind_of(kind)
    _command(known).main(list(options), prog_name=f"tpuctl sim fault add {kind}", standalone_mode=False)


@fault.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def list_faults(as_json: bool) -> None:
    """List the faults that are asked for, and how often each has worked.

    \b
    Example:
      tpuctl sim fault ls
    """
    found = Control(_running()).faults()
    if as_json:
        output.json({"faults": found})
    elif found:
        _table(found)
    else:
        output.note("No faults are asked for.")


@fault.command("rm")
@click.argument("ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Remove every fault.")
def remove(ids: tuple[str, ...], everything: bool) -> None:
    """Remove faults by their ids: what they hold up goes on, and hosts they broke come back.

    \b
    Example:
      tpuctl sim fault rm f1
    """
    if everything == bool(ids):
        raise UsageError(
            "Name faults by their ids, or all by --all.", hint="'tpuctl sim fault ls' lists them."
        )
    control = Control(_running())
    if everything:
        control.clear()
        output.note("Removed every fault.")
    for identifier in ids:
        control.remove(identifier)
        output.note(f"Removed {identifier}.")


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on showing what happens, until the simulator stops.")
@click.option("--last", type=click.IntRange(0), metavar="N", help="Begin with the last N of what happened.")
@click.option("--kind", type=click.Choice(["request", "transition", "fault", "notice"]), help="Only these.")
@click.option("--json", "as_json", is_flag=True, help="Show one JSON object a line.")
def events(follow: bool, last: int | None, kind: str | None, as_json: bool) -> None:
    """Show every request, transition and fault in the simulator in order, also of before a restart.

    \b
    Example:
      tpuctl sim events --follow --kind fault
    """
    folder = simulator_folder()
    log = EventLog(folder)
    before = [one for one in log.new() if kind in (None, one.kind)]
    for one in before if last is None else before[len(before) - min(last, len(before)) :]:
        _show_event(one, as_json=as_json)
    if follow:
        for one in log.follow(lambda: embedded.running(folder) is not None):
            if kind in (None, one.kind):
                _show_event(one, as_json=as_json)


def load_scenario(scenario: faults.Scenario) -> None:
    """Put a scenario's faults in force in the running simulator, and say which."""
    _table(Control(simulator_folder()).add(scenario.faults, scenario.name), err=True)


def _command(kind: faults.Kind) -> click.Command:
    """The command of one kind: its options, then those that every kind has."""
    options = [_option(field) for field in (*kind.fields, *faults.LIMITS)]
    as_json = click.Option(["--json", "as_json"], is_flag=True, help="Show the result as JSON.")
    text = f"{kind.help}\n\n{kind.note}\n\n\b\nExample:\n  tpuctl sim fault add {kind.name} {kind.example}"

    def ask(as_json: bool, **given: str | None) -> None:
        _ask(kind.name, given, as_json=as_json)

    return click.Command(kind.name, params=[*options, as_json], callback=ask, help=text)


def _option(field: faults.Field) -> click.Option:
    default = "" if field.default in (None, "*", "", {}) else f"  [default: {field.default}]"
    name = f"--{field.name.replace('_', '-')}"
    if field.type == "flag":
        return click.Option([name, field.name], is_flag=True, default=None, help=field.help)
    return click.Option(
        [name, field.name], metavar=field.metavar, help=field.help + default, required=field.required
    )


def _ask(kind: str, given: dict[str, str | None], *, as_json: bool) -> None:
    asked = faults.request(kind, given, lambda name: f"--{name.replace('_', '-')}")
    embedded.ensure(simulator_folder())
    found = Control(simulator_folder()).add([asked])
    if as_json:
        output.json({"faults": found})
        return
    _table(found)
    for one in found:
        output.hint(f"tpuctl sim fault rm {one['id']}")


def _kinds_help(ctx: click.Context) -> str:
    formatter = ctx.make_formatter()
    sections = dict.fromkeys(kind.section for kind in faults.KINDS.values())
    for section in sections:
        with formatter.section(section):
            formatter.write_dl(
                [(kind.name, kind.help) for kind in faults.KINDS.values() if kind.section == section]
            )
    return f"{ctx.get_help()}\n{formatter.getvalue()}"


def _table(found: list[dict[str, Any]], *, err: bool = False) -> None:
    rows = [
        (
            one["id"],
            one["kind"],
            " ".join(f"{name}={value}" for name, value in one["options"].items()),
            one["state"],
            one["taken"],
            "-" if one["left"] is None else one["left"],
            one["origin"],
        )
        for one in found
    ]
    output.table(("ID", "KIND", "OPTIONS", "STATE", "WORKED", "LEFT", "FROM"), rows, err=err)


def _show_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        click.echo(output.json_line(shown(event)))
        return
    moment = datetime.fromtimestamp(event.time, UTC).strftime("%H:%M:%S.%f")[:-3]
    words = f"{moment}  {event.service:<8} {event.kind:<10} {event.what:<22} {event.resource}  {event.detail}"
    click.echo(words.rstrip())


def _running() -> Path:
    folder = simulator_folder()
    if embedded.running(folder) is None:
        raise StateError("The simulator is not running.", hint="Start it: tpuctl sim start")
    return folder
