"""Reads the variables that a user gives to a script, and keeps values out of the bucket unless asked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tpuctl.errors import UsageError
from tpuctl.runs import NOT_STORED

_NAME = re.compile(r"[^\W\d]\w{0,254}")


def parse_environment(pairs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `KEY=VALUE`, and of `KEY` alone with its value in `environ`.

    Raises UsageError, which never quotes a value, for anything else.
    """
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(
                "The value of --env does not begin with the name of a variable.",
                hint="Write --env LEARNING_RATE=0.1, or --env API_KEY for the value of this shell.",
            )
        if not equals and name not in environ:
            raise UsageError(
                f"This shell has no variable {name}, which --env {name} passes on.",
                hint=f"Export it first, or write --env {name}=VALUE",
            )
        variables[name] = value if equals else environ[name]
    return variables


def check_values(variables: Mapping[str, str]) -> None:
    """Raise UsageError for a value that no process can have in its environment."""
    for name, value in variables.items():
        if "\0" in value:
            raise UsageError(
                f"The value of {name} holds a NUL character.", hint="Encode it, for instance as base64."
            )


def stored_environment(variables: Mapping[str, str], stored: Collection[str]) -> dict[str, str]:
    """Return variables as the bucket gets them: the values of those in `stored`, of all others the names.

    Raises UsageError for one in `stored` that is not given.
    """
    for name in stored:
        if name not in variables:
            raise UsageError(
                f"--store-env {name} stores the value of a variable that the script does not get.",
                hint=f"Add --env {name}=VALUE",
            )
    return {name: value if name in stored else NOT_STORED for name, value in variables.items()}
