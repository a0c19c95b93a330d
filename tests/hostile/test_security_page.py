"""Each sentence of SECURITY.md that says what holds has a test that fails when it is untrue.

security_page.txt has the table; so it has for other documents that say who can read or write what.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.paths import ROOT

Table = dict[str, list[str]]
"""Beginning of a sentence, or a part of one -> tests."""


def tables() -> dict[tuple[str, str], Table]:
    """Return the table of each section: a document, and its heading or nothing for all of it."""
    found: dict[tuple[str, str], Table] = {}
    tests: list[str] = []
    for line in Path(__file__).with_name("security_page.txt").read_text().splitlines():
        if line.startswith("## "):
            document, _, heading = line.removeprefix("## ").partition(", ")
            table = found.setdefault((document, heading), {})
        elif line.startswith("    "):
            tests.append(line.strip())
        elif line and found:
            assert line not in table, f"two rows for one sentence: {line}"
            tests = table.setdefault(line, [])
    return found


def text_of(document: str, heading: str) -> str:
    text = (ROOT / document).read_text()
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text


def defended() -> list[str]:
    """Return the sentences of SECURITY.md that say what holds: a cell of a table has several."""
    rows = re.findall(r"^\| \*\*.* \| (.*) \|$", text_of("SECURITY.md", "Defended"), re.MULTILINE)
    return [sentence for row in rows for sentence in re.split(r"(?<=\.) (?=[A-Z`])", row)]


def test_each_sentence_of_what_is_defended_has_one_row() -> None:
    table = tables()["SECURITY.md", "Defended"]
    rows = {sentence: [begin for begin in table if sentence.startswith(begin)] for sentence in defended()}
    assert {sentence: found for sentence, found in rows.items() if len(found) != 1} == {}
    assert len(rows) == len(table) > 20


def test_each_row_is_in_its_document_and_names_tests_that_exist() -> None:
    for (document, heading), table in tables().items():
        text = " ".join(text_of(document, heading).split())
        for sentence, tests in table.items():
            assert sentence in text, f"{document} does not say: {sentence}"
            assert tests, f"nothing tests: {sentence}"
            there = set[str]().union(*(names_in(test.partition("::")[0]) for test in tests))
            assert set(tests) - there == set(), f"{document}: {sentence}"


@cache
def names_in(file: str) -> set[str]:
    """Return the tests of a file below tests/ as the table names them; none where there is no such file."""
    path = ROOT / "tests" / file
    body = ast.parse(path.read_text()).body if path.is_file() else []
    places = [(f"{file}::", body)]
    places += [(f"{file}::{item.name}::", item.body) for item in body if isinstance(item, ast.ClassDef)]
    tests = ((place, item) for place, inner in places for item in inner)
    return {f"{place}{item.name}" for place, item in tests if isinstance(item, ast.FunctionDef)}
