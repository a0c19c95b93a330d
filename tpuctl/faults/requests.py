"""A fault as it is asked for: checked against the table, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tpuctl.errors import UsageError, nearest
from tpuctl.faults.fields import Value, checked
from tpuctl.faults.kinds import LIMITS, Kind, kind_of
from tpuctl.faults.methods import check_methods

LIMIT_NAMES = frozenset(one.name for one in LIMITS)


class Request(msgspec.Struct, frozen=True):
    """One fault: its kind, and every option that was given."""

    kind: str
    options: dict[str, Value] = {}


def request(
    kind: str, options: Mapping[str, object], named: Callable[[str], str] = lambda name: name
) -> Request:
    """Return a checked request; raises UsageError with the nearest name, options called as `named` says."""
    known = kind_of(kind)
    given = {name: _value(known, name, value, named) for name, value in options.items() if value is not None}
    missing = [one for one in known.fields if one.required and one.name not in given]
    if missing:
        raise UsageError(
            f"The fault '{kind}' needs {named(missing[0].name)}: {missing[0].help}.",
            hint=f"For example: tpuctl sim fault add {kind} {known.example}",
        )
    if "method" in given:
        check_methods(kind, str(given["method"]), named("method"))
    if ("step" in given or "log" in given) and "run" not in given:
        given["run"] = "*"
    return Request(kind, given)


def _value(kind: Kind, name: str, value: object, named: Callable[[str], str]) -> Value:
    field = kind.field(name)
    if field is None:
        known = [one.name for one in (*kind.fields, *LIMITS)]
        close = nearest(name, known)
        hint = f"Did you mean {named(close[0])}?" if close else f"It has {', '.join(map(named, known))}."
        raise UsageError(f"The fault '{kind.name}' has no {named(name)}.", hint=hint)
    return checked(named(name), field, value)
