"""Parses a requested fault: its kind and options, checked against the table of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tpuctl.errors import UsageError, nearest
from tpuctl.faults.fields import Value, checked
from tpuctl.faults.kinds import LIMITS, Kind, kind_of
from tpuctl.faults.methods import check_methods


class Request(msgspec.Struct, frozen=True):
    """One fault: its kind, and the options that were named."""

    kind: str
    options: dict[str, Value] = {}


def request(
    kind: str, options: Mapping[str, object], named: Callable[[str], str] = lambda name: name
) -> Request:
    """Return a checked request. Raises UsageError with the nearest name; `named` renders an option's name."""
    definition = kind_of(kind)
    values = {
        name: _value(definition, name, value, named) for name, value in options.items() if value is not None
    }
    missing = [field for field in definition.fields if field.required and field.name not in values]
    if missing:
        raise UsageError(
            f"The fault '{kind}' needs {named(missing[0].name)}: {missing[0].help}.",
            hint=f"For example: tpuctl sim fault add {kind} {definition.example}",
        )
    if "method" in values:
        check_methods(kind, str(values["method"]), named("method"))
    if ("step" in values or "log" in values) and "run" not in values:
        values["run"] = "*"
    return Request(kind, values)


def _value(kind: Kind, name: str, value: object, named: Callable[[str], str]) -> Value:
    field = kind.field(name)
    if field is None:
        names = [field.name for field in (*kind.fields, *LIMITS)]
        close = nearest(name, names)
        hint = f"Did you mean {named(close[0])}?" if close else f"It has {', '.join(map(named, names))}."
        raise UsageError(f"The fault '{kind.name}' has no {named(name)}.", hint=hint)
    return checked(named(name), field, value)
