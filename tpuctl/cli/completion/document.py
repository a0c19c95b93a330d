"""Writes `tree.json` from the commands: python -m tpuctl.cli.completion.document"""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from tpuctl import accelerators, faults, images
from tpuctl.cli.completion.answer import FILE
from tpuctl.cli.main import COMMANDS, cli
from tpuctl.cli.simulator.faults import command_of
from tpuctl.cli.value_types import AcceleratorType, LocalPath, Source
from tpuctl.data.public import PUBLIC

KINDS = {
    # path of a command, name of a parameter -> kind of its values; "" for every command
    ("", "--zone"): "zones",
    ("", "--runtime"): "runtimes",
    ("", "--dataset"): "datasets",
    ("", "--tpu"): "nodes",
    ("", "run"): "runs",
    ("", "node"): "nodes",
    ("", "ref"): "datasets",
    ("down", "names"): "nodes",
    ("describe", "name"): "nodes",
    ("why", "name"): "nodes",
    ("wait", "name"): "nodes",
    ("forward", "words"): "nodes",
    ("ssh", "name"): "nodes",
    ("ssh-config", "names"): "nodes",
    ("exec", "name"): "nodes",
    ("exec", "--run"): "runs",
    ("ssh", "--run"): "runs",
    ("resubmit", "--on"): "nodes",
    ("diff", "first"): "runs",
    ("diff", "second"): "runs",
    ("help", "command"): "commands",
    ("data fetch", "name"): "public datasets",
}
_TYPES: tuple[tuple[type, str], ...] = (
    (AcceleratorType, "accelerators"),
    (LocalPath, "files"),
    (Source, "files"),
)


def document() -> str:
    """Return the content of the file."""
    choices: dict[str, list[str]] = {}
    root = _node(cli, "", choices)
    values = {
        "zones": accelerators.zones(),
        "accelerators": sorted(accelerators.catalogue()),
        "runtimes": list(images.PLAIN),
        "public datasets": list(PUBLIC),
        **choices,
    }
    return json.dumps({"root": root, "values": values}, indent=1, ensure_ascii=False) + "\n"


def _node(command: click.Command, path: str, choices: dict[str, list[str]]) -> dict[str, object]:
    node: dict[str, object] = {"help": _line(command, path)}
    with click.Context(command, help_option_names=["-h", "--help"]) as ctx:
        subcommands = _subcommands(command, ctx, path)
        node["parameters"] = [
            _parameter(param, path, choices)
            for param in command.get_params(ctx)
            if not (subcommands and isinstance(param, click.Argument))
        ]
    if subcommands:
        node["commands"] = {
            name: _node(inner, f"{path} {name}".strip(), choices) for name, inner in subcommands.items()
        }
    return node


def _subcommands(command: click.Command, ctx: click.Context, path: str) -> Mapping[str, click.Command]:
    if path == "sim fault add":
        return {kind.name: command_of(kind, lambda request, as_json: None) for kind in faults.KINDS.values()}
    if not isinstance(command, click.Group):
        return {}
    listed = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
    return {name: inner for name, inner in listed.items() if inner}


def _line(command: click.Command, path: str) -> str:
    return COMMANDS[path][1] if path in COMMANDS else command.get_short_help_str(100)


def _parameter(param: click.Parameter, path: str, choices: dict[str, list[str]]) -> dict[str, object]:
    is_option = isinstance(param, click.Option)
    entry: dict[str, object] = {"names": [*param.opts, *param.secondary_opts] if is_option else [param.name]}
    if isinstance(param, click.Option):
        entry["help"] = " ".join((param.help or "").split())
        if param.is_flag or param.count:
            entry["flag"] = True
    elif param.nargs != 1:
        entry["nargs"] = param.nargs
    if kind := _kind(param, path, choices):
        entry["kind"] = kind
    return entry


def _kind(param: click.Parameter, path: str, choices: dict[str, list[str]]) -> str:
    name = param.opts[-1] if isinstance(param, click.Option) else str(param.name)
    if isinstance(param.type, click.Choice):
        texts = list(map(str, param.type.choices))
        choices["|".join(texts)] = texts
        return "|".join(texts)
    of_type = next((kind for type_, kind in _TYPES if isinstance(param.type, type_)), "")
    return of_type or KINDS.get((path, name)) or KINDS.get(("", name), "")


if __name__ == "__main__":
    FILE.write_text(document())
