"""Defines the types of the options of faults, and reads values from a command line, TOML or code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpuctl.errors import UsageError

Value = str | int | float | bool | dict[str, str] | None
"""The value of an option, a dict for `pairs`; None where it has none."""

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {
    "": 1, "b": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class InvalidValue(Exception):
    """A value of the wrong type or range; the text completes "--count has to be ..."."""


@dataclass(frozen=True)
class Field:
    """One option of a kind of fault."""

    name: str
    type: str
    """A key of `TYPES`."""
    help: str
    default: Value = None
    choices: tuple[str, ...] = ()
    """The values of a `choice`."""
    required: bool = False

    @property
    def is_pattern(self) -> bool:
        """Whether the option selects what the fault matches; others say what the fault does."""
        return self.type == "pattern"

    @property
    def metavar(self) -> str:
        """The placeholder of its value in help."""
        return "|".join(self.choices) if self.choices else TYPES[self.type].metavar

    def read(self, value: object) -> Value:
        """Return the value of a text or a TOML value; raises `InvalidValue`."""
        return TYPES[self.type].read(self, value)


@dataclass(frozen=True)
class Type:
    """A type of option."""

    metavar: str
    read: Callable[[Field, object], Value]


def _text(field: Field, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"text, not {_quoted(value)}")
    return value


def _choice(field: Field, value: object) -> str:
    text = str(value)
    if text not in field.choices:
        raise InvalidValue(f"one of {', '.join(field.choices)}, not {_quoted(value)}")
    return text


def _regex(field: Field, value: object) -> str:
    text = _text(field, value)
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidValue(f"a regular expression, not {_quoted(value)}: {error}") from error
    return text


def _whole(field: Field, value: object, least: int = 0) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise InvalidValue(f"a whole number of at least {least}, not {_quoted(value)}")
    return number


def _count(field: Field, value: object) -> int:
    return _whole(field, value, 1)


def _fraction(field: Field, value: object) -> float:
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        raise InvalidValue(f"a number from 0 to 1, not {_quoted(value)}")
    return number


def _seconds(field: Field, value: object) -> float:
    number = _quantity(value, _SECONDS)
    if number is None:
        raise InvalidValue(f"a time such as 30, 500ms, 2m or 1h, not {_quoted(value)}")
    return number


def _bytes(field: Field, value: object) -> int:
    number = _quantity(value, _BYTES)
    if number is None or number != int(number):
        raise InvalidValue(f"a number of bytes such as 100, 64kB or 5MB, not {_quoted(value)}")
    return int(number)


def _flag(field: Field, value: object) -> bool:
    truth = value if isinstance(value, bool) else _TRUTHS.get(str(value).lower())
    if truth is None:
        raise InvalidValue(f"true or false, not {_quoted(value)}")
    return truth


def _pairs(field: Field, value: object) -> dict[str, str]:
    if isinstance(value, str):
        items = [item.partition("=") for item in value.split(",")]
        if not all(equals for _, equals, _ in items):
            raise InvalidValue(f"NAME=VALUE,..., not {_quoted(value)}")
        return {name: text for name, _, text in items}
    if not isinstance(value, Mapping):
        raise InvalidValue(f"a table of texts, not {_quoted(value)}")
    return {str(name): str(text) for name, text in value.items()}


TYPES: dict[str, Type] = {
    "text": Type("TEXT", _text),
    "pattern": Type("PATTERN", _text),
    "glob": Type("PATTERN", _text),
    "regex": Type("REGEX", _regex),
    "choice": Type("", _choice),
    "count": Type("N", _count),
    "number": Type("N", _whole),
    "fraction": Type("0..1", _fraction),
    "seconds": Type("TIME", _seconds),
    "bytes": Type("BYTES", _bytes),
    "flag": Type("", _flag),
    "pairs": Type("NAME=VALUE,...", _pairs),
}
"""Name of a type -> its placeholder in help, and its reader. A `pattern` is a shell pattern (`*`, `?`) for a
fact of the same name; a `glob` is one for something else."""


def checked(name: str, field: Field, value: object) -> Value:
    """Return a field's value; raises UsageError that calls it `name`."""
    try:
        return field.read(value)
    except InvalidValue as error:
        raise UsageError(
            f"{name} has to be {error}.", hint=field.help[:1].upper() + field.help[1:] + "."
        ) from error


def _quantity(value: object, units: Mapping[str, float]) -> float | None:
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match is None or match[2].lower() not in units:
            return None
        return float(match[1]) * units[match[2].lower()]
    return _number(value)


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # other types raise
    except (TypeError, ValueError):
        return None
    return None if isinstance(value, bool) or not math.isfinite(number) or number < 0 else number


def _quoted(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)
