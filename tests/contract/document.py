"""Renders docs/simulator.md from the results of the tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.evidence import Cell, Evidence
from tests.contract.sections import Section, absent_json, absent_v1, absent_xml, sections
from tests.paths import ROOT

FILE = ROOT / "docs" / "simulator.md"
WORKS, ABSENT, UNTESTED = "✓", "—", ""

HEAD = Path(__file__).with_name("head.md")
"""The text above the tables."""


def rendered(cells: dict[Cell, Evidence]) -> str:
    """Return the whole document."""
    return HEAD.read_text() + "".join(_section(section, cells) for section in sections())


def absent() -> set[str]:
    """Return the methods that the simulator has for no client."""
    ssh = {"ssh.password", "ssh.agent forwarding", "ssh.X11"}
    return (
        ssh
        | absent_v1()
        | {method for method, *_ in absent_json()}
        | {f"xml {request}" for request in absent_xml()}
    )


def _section(section: Section, cells: dict[Cell, Evidence]) -> str:
    notes: list[str] = []
    lines = [
        f"\n## {section.title}\n",
        _row(["", *section.clients]),
        "|---" * (len(section.clients) + 1) + "|",
    ]
    missing = absent()
    for method in section.methods:
        evidence = [cells.get((method, client)) for client in section.clients]
        differs = next((cell.differs for cell in evidence if cell and cell.differs), "")
        row = [_text(cell, differs, notes, absent=method in missing) for cell in evidence]
        lines.append(_row([f"`{_short(method)}`", *row]))
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))] if notes else []
    return "\n".join(lines) + "\n"


def _text(evidence: Evidence | None, differs: str, notes: list[str], *, absent: bool) -> str:
    """One cell; a difference that one client shows holds for all."""
    if evidence is None:
        return ABSENT if absent else UNTESTED
    if not differs:
        return WORKS
    if differs not in notes:
        notes.append(differs)
    return f"{WORKS} {notes.index(differs) + 1}"


def _short(method: str) -> str:
    return re.sub(r"^(storage|v1|v2|v2alpha1|xml|ssh|metadata|compute)[. ]", "", method)


def _row(words: list[str]) -> str:
    return f"| {' | '.join(words)} |"
