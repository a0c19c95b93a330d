"""The options of faults: their types, and how a value is read from a command line, a TOML file or code."""

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


class Unfit(Exception):
    """A value that cannot be meant; the text completes "--count has to be ..."."""


@dataclass(frozen=True)
class Field:
    """One option of a kind of fault."""

    name: str
    type: str
    """A key of `TYPES`."""
    help: str
    default: Value = None
    choices: tuple[str, ...] = ()
    """What a `choice` may be."""
    required: bool = False

    @property
    def is_pattern(self) -> bool:
        """Whether it limits the fault to what has such a name; else it says what the fault does."""
        return self.type == "pattern"

    @property
    def metavar(self) -> str:
        """What stands for its value in help."""
        return "|".join(self.choices) if self.choices else TYPES[self.type].metavar

    def read(self, given: object) -> Value:
        """Return the value that was given as text or as a TOML value; raises `Unfit`."""
        return TYPES[self.type].read(self, given)


@dataclass(frozen=True)
class Type:
    """A type of option."""

    metavar: str
    read: Callable[[Field, object], Value]


def _text(field: Field, given: object) -> str:
    if not isinstance(given, str) or not given:
        raise Unfit(f"text, not {_shown(given)}")
    return given


def _choice(field: Field, given: object) -> str:
    text = str(given)
    if text not in field.choices:
        raise Unfit(f"one of {', '.join(field.choices)}, not {_shown(given)}")
    return text


def _regex(field: Field, given: object) -> str:
    text = _text(field, given)
    try:
        re.compile(text)
    except re.error as error:
        raise Unfit(f"a regular expression, and {_shown(given)} is none: {error}") from error
    return text


def _whole(field: Field, given: object, least: int = 0) -> int:
    try:
        number = int(given) if isinstance(given, str) else given
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise Unfit(f"a whole number of at least {least}, not {_shown(given)}")
    return number


def _count(field: Field, given: object) -> int:
    return _whole(field, given, 1)


def _fraction(field: Field, given: object) -> float:
    number = _number(given)
    if number is None or not 0 <= number <= 1:
        raise Unfit(f"a number from 0 to 1, not {_shown(given)}")
    return number


def _seconds(field: Field, given: object) -> float:
    number = _quantity(given, _SECONDS)
    if number is None:
        raise Unfit(f"a time such as 30, 500ms, 2m or 1h, not {_shown(given)}")
    return number


def _bytes(field: Field, given: object) -> int:
    number = _quantity(given, _BYTES)
    if number is None or number != int(number):
        raise Unfit(f"a number of bytes such as 100, 64kB or 5MiB, not {_shown(given)}")
    return int(number)


def _flag(field: Field, given: object) -> bool:
    truth = given if isinstance(given, bool) else _TRUTHS.get(str(given).lower())
    if truth is None:
        raise Unfit(f"true or false, not {_shown(given)}")
    return truth


def _pairs(field: Field, given: object) -> dict[str, str]:
    if isinstance(given, str):
        found = [item.partition("=") for item in given.split(",")]
        if not all(equals for _, equals, _ in found):
            raise Unfit(f"NAME=VALUE,..., not {_shown(given)}")
        return {name: value for name, _, value in found}
    if not isinstance(given, Mapping):
        raise Unfit(f"a table of texts, not {_shown(given)}")
    return {str(name): str(value) for name, value in given.items()}


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
"""Name of a type -> how it looks in help, and how it is read. A `pattern` is a shell pattern
(`*`, `?`) for a fact of the same name; a `glob` is one for something else."""


def checked(name: str, field: Field, given: object) -> Value:
    """Return a field's value; raises UsageError that calls it `name`."""
    try:
        return field.read(given)
    except Unfit as error:
        raise UsageError(
            f"{name} has to be {error}.", hint=field.help[:1].upper() + field.help[1:] + "."
        ) from error


def _quantity(given: object, units: Mapping[str, float]) -> float | None:
    if isinstance(given, str):
        found = _QUANTITY.fullmatch(given.strip())
        if found is None or found[2].lower() not in units:
            return None
        return float(found[1]) * units[found[2].lower()]
    return _number(given)


def _number(given: object) -> float | None:
    try:
        number = float(given)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError):
        return None
    return None if isinstance(given, bool) or not math.isfinite(number) or number < 0 else number


def _shown(given: object) -> str:
    return f"'{given}'" if isinstance(given, str) else repr(given)
