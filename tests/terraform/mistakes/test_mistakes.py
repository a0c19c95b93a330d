"""Each planted mistake is caught by its check; a sample in every run, all in the slow set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.terraform.checks import CHECKS, FORESEEN, WITHOUT_TERRAFORM
from tests.terraform.checks import test as terraform_test
from tests.terraform.mistakes.additions import ADDITIONS
from tests.terraform.mistakes.changes import CHANGES
from tests.terraform.mistakes.mistake import Gone, Mistake, is_gone, planted
from tests.terraform.mistakes.table import MISTAKES, SAMPLE, UNCAUGHT
from tests.terraform.workbench import SOURCE, Workbench

pytestmark = pytest.mark.slow

Make = Callable[..., Workbench]

READ_ONLY = [mistake for mistake in MISTAKES if mistake.check in WITHOUT_TERRAFORM]
EDGES = [mistake for mistake in MISTAKES if mistake.check == "edges"]
ALONE = [mistake for mistake in MISTAKES if mistake.check not in (*WITHOUT_TERRAFORM, "edges")]
ASSERTED = [mistake for mistake in MISTAKES if mistake.asserted[0]]


def rows(mistakes: Iterable[Mistake], quick: bool = False) -> list[object]:
    return [
        pytest.param(
            mistake, id=mistake.name, marks=() if quick or mistake.name in SAMPLE else pytest.mark.slow
        )
        for mistake in mistakes
    ]


def is_named(mistake: Mistake, problem: str) -> bool:
    return any(part in problem for part in mistake.message.split("|"))


def test_the_table_has_no_name_twice_and_more_additions_than_changes() -> None:
    names = [mistake.name for mistake in [*MISTAKES, *UNCAUGHT]]
    assert len(set(names)) == len(names)
    assert set(SAMPLE) < set(names)
    assert {mistake.check for mistake in MISTAKES} <= set(CHECKS)
    assert len(ADDITIONS) > len(CHANGES)


def test_every_mistake_can_be_planted() -> None:
    """Otherwise its row says nothing."""
    texts = {mistake.file: (SOURCE / mistake.file).read_text() for mistake in [*MISTAKES, *UNCAUGHT]}
    gone = [
        problem for mistake in [*MISTAKES, *UNCAUGHT] if (problem := is_gone(mistake, texts[mistake.file]))
    ]
    assert not gone, "\n".join(gone)


def test_a_row_whose_text_is_gone_says_so(tmp_path: Path) -> None:
    lost = Mistake("a lost row", "network.tf", "a text of last year", "", "validate", "")
    bench = Workbench(tmp_path, {})
    said = r"'a lost row' was not planted: network\.tf has no 'a text of last year' any more"
    with pytest.raises(Gone, match=said), planted(bench, lost):
        pytest.fail("the check would have judged the good file")
    unchanged = Mistake("the same", "network.tf", "mtu", "mtu", "validate", "")
    assert is_gone(unchanged, "mtu = 1460") == "'the same' changes nothing"


@pytest.mark.parametrize("mistake", rows(READ_ONLY, quick=True))
def test_it_is_caught_without_terraform(tmp_path: Path, mistake: Mistake) -> None:
    bench = Workbench(tmp_path, {})
    with planted(bench, mistake):
        problem = CHECKS[mistake.check](bench)
    assert problem, "not caught"
    assert is_named(mistake, problem), problem


@pytest.mark.parametrize("mistake", rows(ALONE))
def test_it_is_caught(make_workbench: Make, mistake: Mistake) -> None:
    bench = make_workbench(mistake.version, foresees=mistake.check in FORESEEN)
    with planted(bench, mistake):
        problem = CHECKS[mistake.check](bench)
    assert problem, "not caught"
    assert is_named(mistake, problem), problem


def test_weakened_rules_of_variables_are_caught(workbench: Workbench) -> None:
    """Planted together, since each is of another variable: a run of the table takes seconds."""
    with ExitStack() as together:
        for mistake in EDGES:
            together.enter_context(planted(workbench, mistake))
        problem = CHECKS["edges"](workbench)
    assert [mistake.name for mistake in EDGES if not is_named(mistake, problem)] == [], problem


def rounds(name: str) -> list[list[Mistake]]:
    """Share the mistakes that a file of terraform/tests names among runs, so that none hides another."""
    every: list[list[Mistake]] = []
    for mistake in (mistake for mistake in ASSERTED if mistake.asserted[0] == name):
        for together in every:
            if all(_are_apart(mistake, other) for other in together):
                together.append(mistake)
                break
        else:
            every.append([mistake])
    return every


def _are_apart(one: Mistake, other: Mistake) -> bool:
    overlap = one.file == other.file and (one.old in other.old or other.old in one.old)
    return one.asserted != other.asserted and not overlap


@pytest.mark.parametrize("name", sorted({mistake.asserted[0] for mistake in ASSERTED}))
def test_terraforms_own_tests_name_them_too(workbench: Workbench, name: str) -> None:
    missing = []
    for together in rounds(name):
        with ExitStack() as stack:
            for mistake in together:
                stack.enter_context(planted(workbench, mistake))
            problem = terraform_test(name)(workbench)
        missing += [
            f"{mistake.name}: {problem}" for mistake in together if mistake.asserted[1] not in problem
        ]
    assert not missing, missing[0]


def test_mistakes_that_only_google_can_see_are_differences_alone(
    make_workbench: Make, workbench: Workbench
) -> None:
    """Otherwise the README would promise less than is true."""
    foreseeing = make_workbench("8.7.0", foresees=True)
    with ExitStack() as stack:
        for bench in (workbench, foreseeing):
            for mistake in UNCAUGHT:
                stack.enter_context(planted(bench, mistake))
            bench.run(".", "fmt", "-recursive")
        of_examples = ("fmt", "names", "tables", "validate complete", "apply", "second plan")
        assert {name: CHECKS[name](workbench) for name in of_examples} == dict.fromkeys(of_examples, "")
        assert CHECKS["plan complete"](foreseeing).startswith("the plan complete is not as recorded")


def test_the_readme_has_their_number_and_lists_those_that_are_not_caught() -> None:
    text = re.sub(r"\s+", " ", (SOURCE / "README.md").read_text())
    assert f"holds {len(MISTAKES)} mistakes" in text
    assert [mistake.name for mistake in UNCAUGHT if mistake.name not in text] == []
