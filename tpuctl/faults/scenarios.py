"""Reads scenario files: a list of faults in TOML. Errors name the line.

- Parses a requested fault: its kind and options, checked against the table of kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.config import files
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


KEYS = ("seed", "fault")
HEADER = re.compile(r"\s*\[\[\s*fault\s*\]\]")
EXAMPLE = 'A scenario is: seed = 7, then for each fault [[fault]] and lines such as kind = "stockout".'


class Scenario(msgspec.Struct, frozen=True):
    """The faults of a scenario, in order; each has the file's seed unless it has its own."""

    name: str
    faults: tuple[Request, ...]


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; raises UsageError that names file, line and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The scenario {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The scenario {path} is not text in UTF-8.", hint=EXAMPLE) from error
    return read_scenario(text, str(path))


def read_scenario(text: str, name: str = "scenario") -> Scenario:
    """Read a scenario from TOML; raises UsageError in which the file is called `name`."""
    try:
        content = files.decode(text)
    except files.TomlError as error:
        raise UsageError(f"{name} is not TOML: {error}.", hint=EXAMPLE) from error
    for key in content:
        if key not in KEYS:
            close = nearest(key, KEYS)
            hint = f"Did you mean {close[0]}?" if close else EXAMPLE
            raise UsageError(f"{name}, line {_line(text, key)}: a scenario has no '{key}'.", hint=hint)
    seed, tables = content.get("seed", 0), content.get("fault", [])
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"{name}, line {_line(text, 'seed')}: seed has to be a whole number, not {seed!r}.")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{name}, line {_line(text, 'fault')}: a fault is written [[fault]].", hint=EXAMPLE)
    return Scenario(
        name, tuple(_fault(text, name, number, table, seed) for number, table in enumerate(tables))
    )


def _fault(text: str, name: str, number: int, table: Mapping[str, Any], seed: int) -> Request:
    options = {key: value for key, value in table.items() if key != "kind"}
    if "kind" not in table:
        raise UsageError(f"{name}, line {_line(text, '', number)}: this fault has no kind.", hint=EXAMPLE)
    try:
        return request(str(table["kind"]), {"seed": seed, **options})
    except UsageError as error:
        where = _line(text, _blamed(error.message, table), number)
        raise UsageError(f"{name}, line {where}: {error.message}", hint=error.hint) from error


def _blamed(message: str, table: Mapping[str, Any]) -> str:
    """The key that an error begins or ends with, else the kind."""
    keys = [
        key for key in table if message.startswith((f"{key} ", f"{key}:")) or message.endswith(f"no {key}.")
    ]
    return keys[0] if keys else "kind" if "kind of fault" in message else ""


def _line(text: str, key: str, fault: int | None = None) -> int:
    """The line of a key at the top or in the fault of that number; without a key, the fault's header."""
    lines = text.splitlines()
    first = 0
    if fault is not None:
        headers = [number for number, line in enumerate(lines) if HEADER.match(line)]
        first = headers[fault] if fault < len(headers) else 0
    pattern = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[]=.]")
    places = range(first, len(lines)) if key else ()
    return next((number for number in places if pattern.match(lines[number])), first) + 1
