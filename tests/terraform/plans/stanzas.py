"""Records as text: a stanza a resource, a line an argument; what two records differ in.

    module.base.google_compute_network.this
      mtu = 8896
      name = "tpuctl"

A record that is mostly like another names it in its first line, and has only the stanzas that differ.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Lines = dict[str, Any]
"""Path of an argument, such as `allow[0].ports` -> its value."""
Stanzas = dict[str, Lines]
"""Address of a resource, or what else the stanza is about -> its lines."""

STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
WITHOUT = "without "


def flat(value: Mapping[str, Any], path: str = "") -> Lines:
    """Return nested blocks as lines; what is null or an empty block is left out, as the API leaves it out."""
    lines: Lines = {}
    for name, inner in sorted(value.items()):
        place = f"{path}.{name}" if path else name
        if isinstance(inner, list) and inner and all(isinstance(element, dict) for element in inner):
            for index, element in enumerate(inner):
                lines |= flat(element, f"{place}[{index}]") or {f"{place}[{index}]": {}}
        elif inner is not None and inner not in ([], {}):
            lines[place] = inner
    return lines


def nested(lines: Lines) -> dict[str, Any]:
    """Return the values that `flat` made these lines of."""
    result: dict[str, Any] = {}
    for path, value in lines.items():
        *steps, last = [name or int(index) for name, index in STEP.findall(path)]
        place: Any = result
        for step, following in zip(steps, [*steps, last][1:], strict=True):
            place = _grown(place, step, [] if isinstance(following, int) else {})
        if isinstance(last, int):
            place.append(value)
        else:
            place[last] = value
    return result


def _grown(place: Any, step: str | int, empty: Any) -> Any:
    if isinstance(place, dict):
        return place.setdefault(step, empty)
    while len(place) <= step:  # type: ignore[operator]
        place.append({})
    return place[step]


def text(stanzas: Stanzas, title: str, like: Stanzas | None = None, like_name: str = "") -> str:
    """Return a record as text, by resource; `like` is the record that it is mostly like."""
    rows = [f"# {title}"]
    if like is not None:
        rows += [f"# like {like_name}, but for:"]
        rows += [f"\n{WITHOUT}{name}" for name in sorted(like.keys() - stanzas.keys())]
    for name, lines in sorted(stanzas.items()):
        if like is None or like.get(name) != lines:
            rows += ["", name, *_rows(lines)]
    return "\n".join(rows) + "\n"


def read(content: str, like: Stanzas | None = None) -> Stanzas:
    """Return the record that `text` wrote."""
    stanzas: Stanzas = dict(like or {})
    name = ""
    for row in content.splitlines():
        if row.startswith(WITHOUT):
            stanzas.pop(row.removeprefix(WITHOUT))
        elif row.startswith("  "):
            path, _, value = row.strip().partition(" = ")
            stanzas[name][path] = json.loads(value)
        elif row and not row.startswith("#"):
            name = row
            stanzas[name] = {}
    return stanzas


def differences(recorded: Stanzas, now: Stanzas) -> Iterator[str]:
    """Yield a text for each resource that is new, gone or different, with the lines that differ."""
    for name in sorted(recorded.keys() | now.keys()):
        if name not in recorded:
            yield "\n".join([f"{name} is new:", *(f"  + {row.strip()}" for row in _rows(now[name]))])
        elif name not in now:
            yield f"{name} is gone"
        elif recorded[name] != now[name]:
            before, after = _rows(recorded[name]), _rows(now[name])
            rows = [row for row in difflib.ndiff(before, after) if row[0] in "+-"]
            yield "\n".join([f"{name} differs:", *(f"  {row[0]} {row[2:].strip()}" for row in rows)])


def _rows(lines: Lines) -> list[str]:
    return [
        f"  {path} = {json.dumps(value, ensure_ascii=False, sort_keys=True)}" for path, value in lines.items()
    ]
