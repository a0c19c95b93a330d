"""Each planted mistake is caught by its check; a sample in every run, all in the slow set."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.terraform.checks import CHECKS
from tests.terraform.planted_mistakes import MISTAKES, SAMPLE, UNCAUGHT, Mistake
from tests.terraform.workbench import SOURCE, Workbench

Make = Callable[[str], Workbench]


def rows() -> list[object]:
    return [
        pytest.param(mistake, id=mistake.name, marks=() if mistake.name in SAMPLE else pytest.mark.slow)
        for mistake in MISTAKES
    ]


def test_the_table_has_at_least_fifty_and_no_name_twice() -> None:
    names = [mistake.name for mistake in [*MISTAKES, *UNCAUGHT]]
    assert len(MISTAKES) >= 50
    assert len(set(names)) == len(names)
    assert set(SAMPLE) < set(names)
    assert {mistake.check for mistake in MISTAKES} <= set(CHECKS)


@pytest.mark.parametrize("mistake", rows())
def test_it_is_caught(make_workbench: Make, mistake: Mistake) -> None:
    bench = make_workbench(mistake.version)
    with bench.changed(mistake.file, mistake.old, mistake.new):
        problem = CHECKS[mistake.check](bench)
    assert problem, "not caught"
    assert any(part in problem for part in mistake.message.split("|")), problem


@pytest.mark.slow
def test_mistakes_that_only_google_can_see_are_not_caught(workbench: Workbench) -> None:
    """Otherwise the README would promise less than is true."""
    with ExitStack() as planted:
        for mistake in UNCAUGHT:
            planted.enter_context(workbench.changed(mistake.file, mistake.old, mistake.new))
        workbench.run(".", "fmt", "-recursive")
        problems = {name: check(workbench) for name, check in CHECKS.items()}
        assert problems == dict.fromkeys(CHECKS, "")


def test_the_readme_has_their_number_and_lists_those_that_are_not_caught() -> None:
    text = re.sub(r"\s+", " ", (SOURCE / "README.md").read_text())
    assert f"holds {len(MISTAKES)} mistakes" in text
    assert [mistake.name for mistake in UNCAUGHT if mistake.name not in text] == []
