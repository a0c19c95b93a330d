"""docs/simulator.md, from what the tests have shown."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.evidence import Cell, Shown
from tests.contract.sections import Section, absent_json, absent_xml, sections
from tests.paths import ROOT

FILE = ROOT / "docs" / "simulator.md"
WORKS, ABSENT, UNSEEN = "✓", "—", ""

HEAD = Path(__file__).with_name("head.md")
"""What stands above the tables."""


def rendered(cells: dict[Cell, Shown]) -> str:
    """Return the whole document."""
    return HEAD.read_text() + "".join(_section(section, cells) for section in sections())


def absent() -> set[str]:
    """Return the methods that are not there for any client."""
    known = {"ssh.password", "ssh.agent forwarding", "ssh.X11"}
    return known | {one[0] for one in absent_json()} | {f"xml {one}" for one in absent_xml()}


def _section(section: Section, cells: dict[Cell, Shown]) -> str:
    notes: list[str] = []
    lines = [
        f"\n## {section.title}\n",
        _row(["", *section.clients]),
        "|---" * (len(section.clients) + 1) + "|",
    ]
    missing = absent()
    for method in section.methods:
        shown = [cells.get((method, client)) for client in section.clients]
        differs = next((one.differs for one in shown if one and one.differs), "")
        row = [_text(one, differs, notes, absent=method in missing) for one in shown]
        lines.append(_row([f"`{_short(method)}`", *row]))
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))] if notes else []
    return "\n".join(lines) + "\n"


def _text(shown: Shown | None, differs: str, notes: list[str], *, absent: bool) -> str:
    """One cell; how a method differs is shown with one client, and holds for all."""
    if shown is None:
        return ABSENT if absent else UNSEEN
    if not differs:
        return WORKS
    if differs not in notes:
        notes.append(differs)
    return f"{WORKS} {notes.index(differs) + 1}"


def _short(method: str) -> str:
    return re.sub(r"^(storage|v2|v2alpha1|xml|ssh|metadata|compute)[. ]", "", method)


def _row(words: list[str]) -> str:
    return f"| {' | '.join(words)} |"
