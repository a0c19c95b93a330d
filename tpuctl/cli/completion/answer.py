"""The command completion, and its answers to a shell: without a command's module, without the network.

- Stores the names that commands list, for the completion, by target and by project or bucket.
- Builds click commands from `tree.json`, which has what completion needs: importing the commands is slow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import shell_completion
from click.shell_completion import CompletionItem

from tpuctl.cli import printing
from tpuctl.cli.groups import COMPLETION
from tpuctl.local.name_cache import NameCache

if TYPE_CHECKING:
    from tpuctl.config import Config


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and values in a shell.

    Names of TPUs, runs and datasets are those that a command has listed in the last five minutes.

    \b
    Example:
      tpuctl completion zsh > "${fpath[1]}/_tpuctl"
      tpuctl completion fish > ~/.config/fish/completions/tpuctl.fish
      eval "$(tpuctl completion bash)"
    """
    kind = shell_completion.get_completion_class(shell)
    assert kind, f"click completes no {shell}"
    script = kind(ctx.find_root().command, {}, "tpuctl", COMPLETION)
    for line in (script.source_template % script.source_vars()).splitlines():
        printing.write_code(line)


class ListedNames(NameCache):
    """The names of nodes, runs and datasets that commands have listed in the last minutes."""

    def __init__(self, config: Config) -> None:
        from tpuctl.config.files import state_folder  # msgspec: not for the names of options

        super().__init__(state_folder() / "completion" / "names.json", self._scope)
        self._config = config

    def _scope(self, kind: str) -> str:
        bucket = self._config.get("data_bucket") if kind == "datasets" else None
        place = self._config.get("project") if kind == "nodes" else bucket or self._config.get("bucket")
        return f"{kind} {self._config.target} {place}"


FILE = Path(__file__).with_name("tree.json")
"""Made from the commands themselves: python -m tpuctl.cli.completion.document"""
LIVE = ("nodes", "runs", "datasets")
"""Kinds of values whose names are in the cache."""

Names = Callable[[str, click.Context], list[str]]
"""Returns the names of a kind in `LIVE`; the context has the options typed so far."""


class CommandTree(click.Group):
    """A group, or the root, whose commands are built when they are needed."""

    def __init__(self, name: str, node: Mapping[str, Any], values: Values) -> None:
        super().__init__(name, params=_parameters(node, values), short_help=node["help"])
        self._node = node
        self._values = values

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._node["commands"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        node = self._node["commands"].get(cmd_name)
        return _command(cmd_name, node, self._values) if node else None


class Values:
    """The values of a kind: fixed ones, or live names."""

    def __init__(self, fixed: Mapping[str, list[str]], names: Names) -> None:
        self._fixed = fixed
        self._names = names

    def complete(
        self, kind: str, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the values that begin with what was typed."""
        if kind == "files":
            return [CompletionItem(incomplete, type="file")]
        if kind == "commands":
            return self._commands(ctx, incomplete)
        values = self._names(kind, ctx) if kind in LIVE else self._fixed[kind]
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    def _commands(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the path of a command, of which the words before are in the context."""
        command: click.Command | None = ctx.find_root().command
        for word in ctx.params.get("command") or ():
            command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
        names = command.list_commands(ctx) if isinstance(command, click.Group) else []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def load(names: Names) -> CommandTree:
    """Return the root of all commands."""
    content = json.loads(FILE.read_bytes())
    return CommandTree("tpuctl", content["root"], Values(content["values"], names))


def _command(name: str, node: Mapping[str, Any], values: Values) -> click.Command:
    if "commands" in node:
        return CommandTree(name, node, values)
    return click.Command(name, params=_parameters(node, values), short_help=node["help"])


def _parameters(node: Mapping[str, Any], values: Values) -> list[click.Parameter]:
    return [_parameter(values=values, **parameter) for parameter in node["parameters"]]


def _parameter(
    *, values: Values, names: list[str], help: str = "", kind: str = "", nargs: int = 1, flag: bool = False
) -> click.Parameter:
    offered = partial(values.complete, kind) if kind else None
    if not names[0].startswith("-"):
        return click.Argument(names, nargs=nargs, required=False, shell_complete=offered)
    if flag:
        return click.Option(names, is_flag=True, help=help)
    return click.Option(names, multiple=True, help=help, shell_complete=offered)


class Bash(shell_completion.BashComplete):
    """As click's, and `--zone=eu` is completed, which bash splits into three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one to be completed, and that one."""
        words, incomplete = super().get_completion_args()
        if incomplete == "=":
            return words, ""
        if words and words[-1] == "=":
            return words[:-1], incomplete
        return words, incomplete


def answer() -> int:
    """Print the completions that the environment asks for, and return the exit code; shows no error."""
    shell_completion.add_completion_class(Bash)
    try:
        instruction = os.environ[COMPLETION]
        return shell_completion.shell_complete(load(_names), {}, "tpuctl", COMPLETION, instruction)
    except Exception:  # a traceback in the middle of the line that is being typed helps nobody
        return 1


def _names(kind: str, ctx: click.Context) -> list[str]:
    from tpuctl.config import load

    flags = {name: _last(ctx.params.get(name)) for name in ("target", "project", "bucket")}
    return ListedNames(load(flags)).names(kind)


def _last(values: object) -> str | None:
    return str(values[-1]) if isinstance(values, tuple | list) and values else None
