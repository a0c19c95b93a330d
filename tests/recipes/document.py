"""`python -m tests.recipes.document`: puts the recipes' files into docs/python.md, where it names them."""

from __future__ import annotations

from tests.paths import ROOT
from tests.testing.document import rendered

DOCUMENT = ROOT / "docs" / "python.md"
RECIPES = ROOT / "docs" / "recipes"


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(DOCUMENT.read_text(), RECIPES))
