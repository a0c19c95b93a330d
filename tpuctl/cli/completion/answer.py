"""Answers a shell that asks for completions, without importing a command and without the network."""

from __future__ import annotations

import os

import click
from click import shell_completion

from tpuctl.cli.completion import tree
from tpuctl.cli.groups import COMPLETION


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
        return shell_completion.shell_complete(tree.load(_names), {}, "tpuctl", COMPLETION, instruction)
    except Exception:  # a traceback in the middle of the line that is being typed helps nobody
        return 1


def _names(kind: str, ctx: click.Context) -> list[str]:
    from tpuctl.cli.completion.names import ListedNames  # noqa: PLC0415  only for live names
    from tpuctl.config import load  # noqa: PLC0415

    flags = {name: _last(ctx.params.get(name)) for name in ("target", "project", "bucket")}
    return ListedNames(load(flags)).names(kind)


def _last(values: object) -> str | None:
    return str(values[-1]) if isinstance(values, tuple | list) and values else None
