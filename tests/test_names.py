"""Names say what a thing is: filler words and `Any` stay rare."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

FILLER = {
    "all", "any", "asked", "been", "both", "done", "each", "found", "given", "gone", "got", "had", "here",
    "it", "kept", "known", "left", "made", "meant", "one", "said", "seen", "shown", "stuff", "taken", "that",
    "there", "these", "thing", "things", "those", "told", "wanted", "what",
}  # fmt: skip
"""Words that stand for any thing. A name of a variable or an argument says which thing it is."""
MOST_FILLER = 0.02
"""Share of the names of variables and arguments."""
MOST_ANY = 20
"""Uses of `Any` in 1,000 lines."""
PACKAGE = ROOT / "tpuctl"


def modules(part: str) -> list[Path]:
    """The modules of the simulator, or all others."""
    return [path for path in PACKAGE.rglob("*.py") if (PACKAGE / "sim" in path.parents) == (part == "sim")]


def names(path: Path) -> Iterator[str]:
    """The names that a module gives to variables and arguments."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.mark.parametrize("part", ["sim", "all others"])
def test_names_are_nouns_for_things(part: str) -> None:
    every = [name.lstrip("_") for path in modules(part) for name in names(path)]
    every = [name for name in every if name not in ("self", "cls", "")]
    filler = [name for name in every if name in FILLER]
    assert len(filler) < MOST_FILLER * len(every), sorted(set(filler), key=filler.count)[-5:]


@pytest.mark.parametrize("part", ["sim", "all others"])
def test_any_is_rare(part: str) -> None:
    texts = [path.read_text() for path in modules(part)]
    uses = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    assert 1000 * uses < MOST_ANY * sum(text.count("\n") for text in texts)
