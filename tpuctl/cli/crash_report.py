"""Writes a report of a bug: private to its user, and without values that may be secret."""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from tpuctl import __version__, printable
from tpuctl.config.files import state_folder
from tpuctl.local.private_folder import create_private_file
from tpuctl.masking import MASK, masked, masked_arguments

LONGEST = 200_000
"""Most characters of a report: what an error quotes may come from a bucket."""
VARIABLE_OPTIONS = ("--env", "--secret")


class CrashReport:
    """What is known about a bug; no variable's value, no local variable, no secret that is recognised."""

    def __init__(self, error: Exception, arguments: Sequence[str]) -> None:
        """Read an error and the arguments of the command line that met it."""
        shown, values = _without_values(arguments)
        command = masked_arguments(shown)
        values += command.values
        notes = getattr(error, "__notes__", [])
        summary = " ".join([f"a bug in tpuctl: {type(error).__name__}: {error}", *notes])
        trace = "".join(traceback.format_exception(error))
        self.summary = masked(_cut(summary), values)
        """One sentence for the user."""
        self.text = printable.block(
            f"tpuctl {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
            f"{['tpuctl', *command.arguments]}\n\n{masked(_cut(trace), values)}"
        )

    def write(self) -> Path:
        """Write the report into the state folder and return its path; raises OSError."""
        path = state_folder() / "crashes" / f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.txt"
        create_private_file(path, self.text.encode(errors="backslashreplace"))
        return path


def _without_values(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return arguments without the values of variables, and these values."""
    shown: list[str] = []
    values: list[str] = []
    for before, argument in zip(("", *arguments), arguments, strict=False):
        option, equals, rest = argument.partition("=")
        assignment = rest if equals and option in VARIABLE_OPTIONS else argument
        if before not in VARIABLE_OPTIONS and assignment is argument:
            shown.append(argument)
            continue
        name, has_value, value = assignment.partition("=")
        shown.append(argument.removesuffix(value) + MASK if has_value else argument)
        values.append(value if has_value else os.environ.get(name, ""))
    return shown, values


def _cut(text: str) -> str:
    """Return the beginning and the end of a text that is too long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n...\n{text[-LONGEST // 2 :]}"
