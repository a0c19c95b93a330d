"""A command whose last words, after --, are those of another program."""

from __future__ import annotations

import click


class AfterDashes(click.Command):
    """Passes the words after -- as `words`, exactly as they are typed."""

    words = "-- COMMAND..."
    """These words in the line of usage."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words after the first -- away before the options are read."""
        own, dashes, words = args, None, []
        if "--" in args:
            at = args.index("--")
            own, dashes, words = args[:at], args[at], args[at + 1 :]
        rest = super().parse_args(ctx, own)
        ctx.params["words"] = tuple(words) if dashes else ()
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the pieces of the usage line."""
        return [*super().collect_usage_pieces(ctx), self.words]
