"""Masks secrets among the arguments of a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpuctl.masking.names import is_secret
from tpuctl.masking.text import MASK, masked, secrets_in

_OPTION = re.compile(r"(?:--?|\+{1,2}|~)?(?P<name>[A-Za-z_][\w./-]{0,99}?)(?:=(?P<value>.*))?", re.DOTALL)
"""`--name value`, `--name=value`, and `name=value` as Hydra and make take it."""


@dataclass(frozen=True)
class MaskedArguments:
    """Arguments that can be stored, what they do not show, and where it was."""

    arguments: tuple[str, ...]
    values: tuple[str, ...] = ()
    """The secrets themselves."""
    labels: tuple[str, ...] = ()
    """What holds each: `--api-key`, or `argument 3 (a GitHub token)`."""


def masked_arguments(arguments: Sequence[str]) -> MaskedArguments:
    """Mask the values of options whose names tell of a secret, and everything that looks like a token."""
    shown: list[str] = []
    values: list[str] = []
    labels: list[str] = []
    option = ""
    for number, argument in enumerate(arguments, start=1):
        match = _OPTION.fullmatch(argument)
        name, value = (match["name"], match["value"]) if match else ("", None)
        if option and not argument.startswith("--") and is_secret(option, argument):
            shown.append(MASK)
            values.append(argument)
            labels.append(option)
        elif value is not None and is_secret(name, value):
            prefix = argument.removesuffix(value)
            shown.append(prefix + MASK)
            values.append(value)
            labels.append(prefix.rstrip("="))
        else:
            shown.append(masked(argument))
            secrets = secrets_in(argument)
            values += [argument[secret.start : secret.end] for secret in secrets]
            labels += [f"argument {number} ({secret.kind})" for secret in secrets]
        option = argument if argument.startswith("-") and value is None else ""
    return MaskedArguments(tuple(shown), tuple(values), tuple(labels))
