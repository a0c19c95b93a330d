"""The command completion."""

from __future__ import annotations

import click
from click import shell_completion

from tpuctl.cli import printing
from tpuctl.cli.groups import COMPLETION


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
