"""The class of every group of commands: a word that is no command is answered with the right one."""

from __future__ import annotations

import click

COMPLETION = "_TPUCTL_COMPLETE"
"""Environment variable that a shell sets when it asks for completions, such as `bash_complete`."""
CONTEXT = {"help_option_names": ["-h", "--help"]}
"""Settings of a command that has no parent; its subcommands inherit them."""


class Group(click.Group):
    """A group whose error names the command that a user who typed another word most likely meant."""

    group_class = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise click.UsageError with a hint if the command does not exist, except during completion."""
        word = args[0]
        if not ctx.resilient_parsing and word[:1] != "-" and self.get_command(ctx, word) is None:
            from tpuctl.cli.hints import unknown_command  # only on the way to an error

            raise unknown_command(word, self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)
