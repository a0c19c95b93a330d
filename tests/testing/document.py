"""`python tests/testing/document.py`: puts the examples' files into docs/testing.md, where it names them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "testing.md"
EXAMPLES = Path(__file__).with_name("examples")
PLACE = re.compile(r"<!-- (\w+\.(?:py|yml)) -->\n(?:\n```(?:python|yaml)\n.*?\n```\n)?", re.DOTALL)
LANGUAGES = {".py": "python", ".yml": "yaml"}


def rendered(text: str, folder: Path = EXAMPLES) -> str:
    """Return a document with the files of a folder as they are now, each after what names it."""

    def block(match: re.Match[str]) -> str:
        language = LANGUAGES[Path(match[1]).suffix]
        return f"<!-- {match[1]} -->\n\n```{language}\n{(folder / match[1]).read_text()}```\n"

    return PLACE.sub(block, text)


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(DOCUMENT.read_text()))
