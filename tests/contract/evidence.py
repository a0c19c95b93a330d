"""results.json: for each method and client, the tests that show it, and how it differs where it does."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).with_name("results.json")
ENOUGH = 4
"""Tests named for a cell: more say no more."""

Cell = tuple[str, str]
"""Method, client."""


@dataclass
class Shown:
    """What the tests of a run, or of all runs so far, have shown of one cell."""

    tests: list[str] = field(default_factory=list)
    differs: str = ""


def load() -> dict[Cell, Shown]:
    """Read what the committed table is made of."""
    content = json.loads(FILE.read_text()) if FILE.exists() else {}
    return {
        (method, client): Shown(shown["tests"], shown.get("differs", ""))
        for method, clients in content.items()
        for client, shown in clients.items()
    }


def save(cells: dict[Cell, Shown]) -> None:
    """Write it."""
    content: dict[str, dict[str, object]] = {}
    for (method, client), shown in sorted(cells.items()):
        differs = {"differs": shown.differs} if shown.differs else {}
        content.setdefault(method, {})[client] = {"tests": shown.tests, **differs}
    FILE.write_text(json.dumps(content, indent=1) + "\n")


def merged(known: dict[Cell, Shown], seen: dict[Cell, Shown], passed: set[str]) -> dict[Cell, Shown]:
    """Return what is shown after a run: tests that passed are believed anew, others as before."""
    result: dict[Cell, Shown] = {}
    for cell in known.keys() | seen.keys():
        before, now = known.get(cell, Shown()), seen.get(cell, Shown())
        tests = sorted({*(test for test in before.tests if test not in passed), *now.tests})[:ENOUGH]
        if tests:
            result[cell] = Shown(tests, now.differs or before.differs)
    return result


def disagreements(known: dict[Cell, Shown], seen: dict[Cell, Shown], passed: set[str]) -> list[str]:
    """Return where a run contradicts the table: what a cell's tests no longer show, and what is new."""
    gone = [
        f"the table says that {client} does {method}, which none of {', '.join(shown.tests)} shows any more"
        for (method, client), shown in known.items()
        if set(shown.tests) <= passed
        and not set(shown.tests) & set(seen.get((method, client), Shown()).tests)
    ]
    new = [
        f"{now.tests[0]} shows that {cell[1]} does {cell[0]}, of which the table says nothing"
        for cell, now in seen.items()
        if cell not in known
    ]
    other = [
        f"{now.tests[0]} says how {cell[1]} differs in {cell[0]}, and the table does not: {now.differs}"
        for cell, now in seen.items()
        if cell in known and now.differs and now.differs != known[cell].differs
    ]
    return sorted(gone + new + other)
