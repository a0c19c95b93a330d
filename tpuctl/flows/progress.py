"""Defines how a flow reports its steps, and what keeps it from the next one for a while."""

from __future__ import annotations

from collections.abc import Callable

from tpuctl.errors import TpuctlError

Report = Callable[[str], None]
"""Takes one line for the user; the command line shows it."""


def silent(line: str) -> None:
    """Report to nobody."""


class Outage:
    """Reports what keeps a command from looking, once until it is over; the command looks again."""

    def __init__(self, report: Report, doing: str) -> None:
        """Take what the command still does meanwhile: "watching"."""
        self._report = report
        self._doing = doing
        self.message = ""
        """What keeps it; empty once it is over."""

    def note(self, error: TpuctlError) -> None:
        """Take the error of a look."""
        if error.message != self.message:
            self._report(f"{error.message} Still {self._doing}.")
        self.message = error.message

    def end(self) -> None:
        """Take a look that went well."""
        self.message = ""
