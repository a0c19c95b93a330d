"""`python tests/testing/document.py`: puts the examples' files into docs/testing.md, where it names them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "testing.md"
EXAMPLES = Path(__file__).with_name("examples")
PLACE = re.compile(r"<!-- (\w+\.py) -->\n(?:\n```python\n.*?\n```\n)?", re.DOTALL)


def rendered(text: str) -> str:
    """Return the document with the files as they are now, each after the comment that names it."""
    return PLACE.sub(lambda match: f"<!-- {match[1]} -->\n\n```python\n{_text(match[1])}```\n", text)


def _text(name: str) -> str:
    return (EXAMPLES / name).read_text()


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(DOCUMENT.read_text()))
