"""Reads scenario files: a list of faults in TOML. Errors name the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.config import toml
from tpuctl.errors import UsageError, nearest
from tpuctl.faults.parsing import Request, request

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
        content = toml.decode(text)
    except toml.TomlError as error:
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
