"""Each planted mistake is caught by the check it is meant for; a sample in every run, all in the slow set."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.terraform.checks import CHECKS
from tests.terraform.planted_mistakes import MISTAKES, SAMPLE, UNSEEN, Mistake
from tests.terraform.workbench import SOURCE, Workbench

Make = Callable[[str], Workbench]


def rows() -> list[object]:
    return [
        pytest.param(one, id=one.name, marks=() if one.name in SAMPLE else pytest.mark.slow)
        for one in MISTAKES
    ]


def test_the_table_has_at_least_fifty_and_no_name_twice() -> None:
    names = [one.name for one in [*MISTAKES, *UNSEEN]]
    assert len(MISTAKES) >= 50
    assert len(set(names)) == len(names)
    assert set(SAMPLE) < set(names)
    assert {one.check for one in MISTAKES} <= set(CHECKS)


@pytest.mark.parametrize("mistake", rows())
def test_it_is_caught(make_workbench: Make, mistake: Mistake) -> None:
    bench = make_workbench(mistake.version)
    with bench.changed(mistake.file, mistake.old, mistake.new):
        said = CHECKS[mistake.check](bench)
    assert said, "not caught"
    assert any(part in said for part in mistake.says.split("|")), said


@pytest.mark.slow
def test_what_only_google_knows_is_not_caught(workbench: Workbench) -> None:
    """Else the README would promise less than is true."""
    with ExitStack() as planted:
        for one in UNSEEN:
            planted.enter_context(workbench.changed(one.file, one.old, one.new))
        workbench.run(".", "fmt", "-recursive")
        assert {name: said for name, check in CHECKS.items() if (said := check(workbench))} == {}


def test_the_readme_says_how_many_there_are_and_lists_what_is_not_caught() -> None:
    text = re.sub(r"\s+", " ", (SOURCE / "README.md").read_text())
    assert f"holds {len(MISTAKES)} mistakes" in text
    assert [one.name for one in UNSEEN if one.name not in text] == []
