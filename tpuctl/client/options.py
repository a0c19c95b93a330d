"""Refuses options of a call that Python alone would pass on: a misspelt one must not cost money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args, get_origin, get_type_hints

from tpuctl.errors import UsageError, nearest


def check_options(options: Mapping[str, object], kind: type) -> None:
    """Raise UsageError for an option that is not of this TypedDict, or that cannot have its value."""
    types = get_type_hints(kind)
    for name, value in options.items():
        if name not in types:
            close = nearest(name, types, 1)
            hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(sorted(types))}."
            raise UsageError(f"There is no option '{name}'.", hint=hint)
        if value is None:
            continue
        if get_origin(types[name]) is Literal:
            check_choices(name, [value], get_args(types[name]))
        elif get_origin(types[name]) is Sequence:
            check_list(name, value)
        elif types[name] is str and not isinstance(value, str):
            raise UsageError(
                f"{name} is a text, and not {value!r}.", hint="Give its name, or str(...) of it."
            )


def check_list(name: str, value: object) -> None:
    """Raise UsageError for a text where a list of texts is needed: Python would take its letters."""
    if isinstance(value, (str, bytes)):
        raise UsageError(f"{name} is a list, and not the text {value!r}.", hint=f"Write [{value!r}].")


def check_texts(name: str, values: Iterable[object]) -> None:
    """Raise UsageError for a list that is a text, or that has what is none."""
    check_list(name, values)
    for value in values:
        if not isinstance(value, str):
            raise UsageError(f"{name} has {value!r}, which is no text.", hint=f"Write '{value}'.")


def check_values(name: str, variables: Mapping[str, object]) -> None:
    """Raise UsageError for a variable whose value is no text; the value may be a secret, and is not shown."""
    for key, value in variables.items():
        if not isinstance(value, str):
            kind = type(value).__name__
            raise UsageError(
                f"{name}: the value of {key} is no text, but of type {kind}.", hint="Use str(...)."
            )


def check_choices(name: str, values: Iterable[object], choices: Iterable[object]) -> None:
    """Raise UsageError for a value that is none of the choices."""
    check_list(name, values)
    listed = list(choices)
    for value in values:
        if value not in listed:
            raise UsageError(
                f"{value!r} is none of the values of {name}.", hint=f"One of {', '.join(map(str, listed))}."
            )


def check_least(name: str, value: int | None, least: int) -> None:
    """Raise UsageError for a number that is too small."""
    if value is not None and value < least:
        raise UsageError(f"{name} is {value}, and at least {least} is needed.", hint=f"Leave out {name}.")
