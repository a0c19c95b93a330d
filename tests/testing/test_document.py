"""docs/testing.md shows the examples as they are tested, and the first block works as it stands."""

from __future__ import annotations

import re

from tests.testing.document import DOCUMENT, EXAMPLES, PLACE, rendered


def test_it_shows_the_examples_as_they_are() -> None:
    text = DOCUMENT.read_text()
    assert rendered(text) == text, "run: python tests/testing/document.py"


def test_it_shows_every_example() -> None:
    named = {match[1] for match in PLACE.finditer(DOCUMENT.read_text())}
    assert named == {path.name for path in EXAMPLES.glob("*.py")}


def test_its_first_block_runs(capsys) -> None:
    block = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert block
    exec(compile(block[1], "docs/testing.md", "exec"), {})
    assert capsys.readouterr().out.endswith(" sim-project-tpuctl\n")
