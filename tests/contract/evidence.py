"""results.json: for each method and client, the tests that show it, and how it differs where it does."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).with_name("results.json")
ENOUGH = 4
"""Tests named for a cell: more add nothing."""

Cell = tuple[str, str]
"""Method, client."""


@dataclass
class Evidence:
    """The tests that prove one cell, in a run or in all runs so far, and its difference from Google's."""

    tests: list[str] = field(default_factory=list)
    differs: str = ""


def load() -> dict[Cell, Evidence]:
    """Read the committed results."""
    content = json.loads(FILE.read_text()) if FILE.exists() else {}
    return {
        (method, client): Evidence(entry["tests"], entry.get("differs", ""))
        for method, clients in content.items()
        for client, entry in clients.items()
    }


def save(cells: dict[Cell, Evidence]) -> None:
    """Write the results."""
    content: dict[str, dict[str, object]] = {}
    for (method, client), evidence in sorted(cells.items()):
        differs = {"differs": evidence.differs} if evidence.differs else {}
        content.setdefault(method, {})[client] = {"tests": evidence.tests, **differs}
    FILE.write_text(json.dumps(content, indent=1) + "\n")


def merged(
    recorded: dict[Cell, Evidence], observed: dict[Cell, Evidence], passed: set[str]
) -> dict[Cell, Evidence]:
    """Return the results after a run: those of tests that passed are replaced, others stay."""
    result: dict[Cell, Evidence] = {}
    for cell in recorded.keys() | observed.keys():
        before, now = recorded.get(cell, Evidence()), observed.get(cell, Evidence())
        tests = sorted({*(test for test in before.tests if test not in passed), *now.tests})[:ENOUGH]
        if tests:
            result[cell] = Evidence(tests, now.differs or before.differs)
    return result


def disagreements(
    recorded: dict[Cell, Evidence], observed: dict[Cell, Evidence], passed: set[str]
) -> list[str]:
    """Return where a run contradicts the table: cells that their tests no longer prove, and new ones."""
    missing = [
        f"the table says that {client} does {method}, which {', '.join(evidence.tests)} no longer show"
        for (method, client), evidence in recorded.items()
        if set(evidence.tests) <= passed
        and not set(evidence.tests) & set(observed.get((method, client), Evidence()).tests)
    ]
    new = [
        f"{now.tests[0]} shows that {cell[1]} does {cell[0]}, of which the table says nothing"
        for cell, now in observed.items()
        if cell not in recorded
    ]
    other = [
        f"{now.tests[0]} says how {cell[1]} differs in {cell[0]}, and the table does not: {now.differs}"
        for cell, now in observed.items()
        if cell in recorded and now.differs and now.differs != recorded[cell].differs
    ]
    return sorted(missing + new + other)
