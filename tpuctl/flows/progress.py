"""Defines how a flow reports its steps."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Takes one line for the user; the command line shows it."""


def silent(line: str) -> None:
    """Report to nobody."""
