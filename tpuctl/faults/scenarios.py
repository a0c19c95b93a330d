"""Reads scenario files: a list of faults in TOML. Errors name the line.

- Parses a requested fault: its kind and options, checked against the table of kinds.
- Generates docs/faults.md from the table of kinds: `python -m tpuctl.faults.document > docs/faults.md`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.config import files
from tpuctl.errors import UsageError, nearest
from tpuctl.faults.fields import TYPES, Field, Value, checked
from tpuctl.faults.kinds import KINDS, LIMITS, Kind, kind_of
from tpuctl.faults.methods import GCS, TPU, check_methods


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


INTRODUCTION = """\
# Injecting faults into the simulator

<!-- Written by `python -m tpuctl.faults.scenarios`; a test compares. -->

Add faults to the simulator by command, by a scenario file, or in code, and see how your tools react. The
names are the same everywhere: `--zone` on the command line is `zone` in a file and in code.

    tpuctl sim fault add stockout --zone europe-west4-a --count 2
    tpuctl sim fault ls
    tpuctl sim fault rm f1
    tpuctl sim events --follow --kind fault

A scenario is a TOML file, for `tpuctl sim start --scenario FILE`; it replaces an earlier one:

    seed = 7

    [[fault]]
    kind = "stockout"
    zone = "europe-west4-a"
    count = 2

    [[fault]]
    kind = "gcs-error"
    status = 503
    method = "storage.objects.create"
    object = "runs/*"
    probability = 0.2

In code, where the simulator runs in the same process:

    fault = simulator.faults.add("preemption", run="digits-*", step=200)
    simulator.faults.remove(fault.id)
    simulator.events.find(kind="fault", what="preemption")

A fault is in force from when it is added until its count is used up, its duration is over, or it is removed.
It survives a restart of the simulator. If several match, the one that was added first fires. Firing by
probability depends on the seed, the kind, the place in the scenario and the number of earlier matches: the
same scenario injects the same faults into the same calls. `tpuctl sim events` shows every request, state
transition and fault in order, also from before a restart.

PATTERN is a shell pattern (`*`, `?`, `[ab]`). TIME is a number of seconds or has a unit (`500ms`, `30s`,
`2m`, `1h`); BYTES may have one, too (`64kB`, `5MB`).
"""


def document() -> str:
    """Return the text of docs/faults.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Options of every fault\n"
    yield from _table(LIMITS)
    for section in dict.fromkeys(kind.section for kind in KINDS.values()):
        yield f"\n## {section}"
        for kind in KINDS.values():
            if kind.section == section:
                yield from _kind(kind)
    yield "\n## Methods\n"
    yield (
        "Of the Cloud TPU API, where `tpu.` is optional: " + ", ".join(f"`{name}`" for name in TPU) + ".\n"
    )
    yield "Of Cloud Storage: " + ", ".join(f"`storage.{name}`" for name in GCS) + "."


def _kind(kind: Kind) -> Iterator[str]:
    yield f"\n### {kind.name}\n"
    yield f"{kind.help}\n"
    if kind.note:
        yield f"{kind.note}\n"
    if kind.count is not None:
        yield f"The default of `count` is {kind.count}.\n"
    yield f"    tpuctl sim fault add {kind.name} {kind.example}\n"
    yield from _table(kind.fields)


def _table(fields: tuple[Field, ...]) -> Iterator[str]:
    yield "| option | value | meaning | default |"
    yield "|---|---|---|---|"
    for field in fields:
        value = ", ".join(field.choices) or TYPES[field.type].metavar or "true, false"
        yield f"| `{field.name}` | {value} | {field.help} | {_default(field)} |"


def _default(field: Field) -> str:
    if field.required:
        return "*required*"
    if field.name == "count":
        return f"unlimited; `1` for {', '.join(kind.name for kind in KINDS.values() if kind.count == 1)}"
    return "" if field.default in (None, "", {}) else f"`{field.default}`"


if __name__ == "__main__":
    sys.stdout.write(document())


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
