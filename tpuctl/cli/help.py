"""The command help."""

from __future__ import annotations

import click


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def show_help(ctx: click.Context, command: tuple[str, ...]) -> object:
    """Show the help of a command, as its --help does; without COMMAND, that of tpuctl.

    \b
    Example:
      tpuctl help data upload
    """
    root = ctx.find_root().command
    return root.main([*command, "--help"], prog_name="tpuctl", standalone_mode=False)
