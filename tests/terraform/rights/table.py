"""The table of calls and permissions (terraform/permissions.json), and its form in terraform/README.md.

python -m tests.terraform.rights.table
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.terraform.workbench import SOURCE

DATA, README = SOURCE / "permissions.json", SOURCE / "README.md"
BEGIN, END = "<!-- BEGIN_PERMISSIONS -->\n", "<!-- END_PERMISSIONS -->\n"
COLUMNS = ("who", "call", "permission", "role", "on", "source")


@dataclass(frozen=True)
class Row:
    """One call, what it needs, and who grants that."""

    who: str
    call: str
    permission: str
    role: str
    """`NAME_...` is a custom role of the module."""
    on: str
    source: str
    tested: str
    """`walk`, the test that makes the call elsewhere, or why none does."""


def rows() -> list[Row]:
    """Return the rows."""
    return [Row(**row) for row in json.loads(DATA.read_text())["rows"]]


def not_granted() -> dict[str, str]:
    """Return the permissions that a call would use and that nobody has, each with what is said then."""
    return dict(json.loads(DATA.read_text())["not_granted"])


def updated() -> str:
    """Return the README with the table of today."""
    lines = [" | ".join(("", *COLUMNS, "")).strip(), " | ".join(("", *(["---"] * len(COLUMNS)), "")).strip()]
    for row in rows():
        source = f"[source]({row.source})"
        cells = (row.who, row.call, f"`{row.permission}`", f"`{row.role}`", row.on, source)
        lines.append(" | ".join(("", *cells, "")).strip())
    before, _, rest = README.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + "".join(f"{line}\n" for line in lines) + END + after


if __name__ == "__main__":
    README.write_text(updated())
