"""Builds the command `sim fault add KIND` of each kind of fault, with options from the table of kinds."""

from __future__ import annotations

from collections.abc import Callable

import click

from tpuctl import faults
from tpuctl.cli.groups import CONTEXT

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
