"""Records what each command takes, a line for each value: python -m tests.cli.completion.interface

A change of the command line is a change of `interface.txt`, to be read by whoever reviews it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from tests.cli.test_help import LEAVES
from tpuctl import faults
from tpuctl.cli.groups import CONTEXT
from tpuctl.cli.main import HIDDEN, cli
from tpuctl.cli.simulator.faults import command_of

FILE = Path(__file__).with_name("interface.txt")


def interface(*paths: str) -> str:
    """Return the content of the file, or the part of some commands."""
    return "".join(
        f"{line}\n"
        for path, command in _commands()
        if path in paths or not paths
        for line in (path, *_lines(command))
    )


def recorded(*paths: str) -> str:
    """Return the part of the file about some commands."""
    parts = re.split(r"^(?=\S)", FILE.read_text(), flags=re.MULTILINE)
    return "".join(part for part in parts if part.partition("\n")[0] in paths)


def _commands() -> Iterator[tuple[str, click.Command]]:
    yield from ((" ".join(path), command) for path, command in LEAVES)
    for name in HIDDEN:
        command = cli.get_command(click.Context(cli), name)
        assert command
        yield name, command
    for kind in faults.KINDS.values():
        yield f"sim fault add {kind.name}", command_of(kind, lambda request, as_json: None)


def _lines(command: click.Command) -> Iterator[str]:
    with click.Context(command, info_name="", **CONTEXT) as ctx:
        for param in command.params:
            words = [*_names(param), param.make_metavar(ctx), *_facts(param)]
            yield "  " + " ".join(word for word in words if word)


def _names(param: click.Parameter) -> Iterator[str]:
    if isinstance(param, click.Option):
        yield "/".join(filter(None, (", ".join(param.opts), ", ".join(param.secondary_opts))))


def _facts(param: click.Parameter) -> Iterator[str]:
    kind = param.type
    if isinstance(kind, click.IntRange | click.FloatRange):
        yield f"from {kind.min} to {kind.max}"
    elif not (isinstance(param, click.Option) and param.is_flag):
        yield kind.name
    if param.nargs != 1:
        yield f"nargs {param.nargs}"
    for fact in ("required", "multiple", "is_flag", "hidden", "show_default", "count"):
        if getattr(param, fact, False):
            yield fact.removeprefix("is_")
    default = param.to_info_dict()["default"]
    if default is not None and default is not False and default != ():
        yield f"default {default}"


if __name__ == "__main__":
    FILE.write_text(interface())
