"""The mistakes that `make mutate` makes."""

from __future__ import annotations

import pytest

from tests.mutation.equivalents import EQUIVALENTS, reason
from tests.mutation.mutants import mutants
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("line", "mistakes"),
    [
        ("x = a == b", ["x = a != b"]),
        ("x = a and b", ["x = a or b"]),
        ("x = a + b", ["x = a - b"]),
        ("x = not a", ["x = a"]),
        ("x = a in b", ["x = a not in b"]),
        ("x = True", ["x = False"]),
        ("x = 5", ["x = 50"]),
        ("x = b if a else c", ["x = b if not (a) else c"]),
        ("call(a)", ["pass"]),
        ("x = a['b']", ["x = a['']"]),
        ("é = a < b", ["é = a <= b"]),
    ],
)
def test_each_kind_of_mistake_changes_one_place(line: str, mistakes: list[str]) -> None:
    assert [mutant.applied(line) for mutant in mutants("m.py", line)] == mistakes


@pytest.mark.parametrize(
    "line",
    [
        "x: int",
        "'docstring'",
        "NAME = 'a'",
        "__all__ = ['a', 'b']",
        "raise ValueError('two words')",
        "assert a == b",
        "f'{a}'",
        "T = TypeVar('T', covariant=True)",
        "x = zip(a, b, strict=True)",
        "@dataclass(frozen=True)\nclass A: ...",
        "class A(Struct, frozen=True): ...",
        "def f() -> 'A': ...",
    ],
)
def test_what_changes_no_behaviour_is_left_alone(line: str) -> None:
    assert mutants("m.py", line) == []


def test_a_diff_has_the_line_as_it_was_and_as_it_is() -> None:
    source = "x = 1\nif a < b:\n    pass\n"
    assert mutants("m.py", source)[-1].diff(source) == "- if a < b:\n+ if a <= b:"


def test_a_mistake_that_changes_no_behaviour_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EQUIVALENTS, ("m.py", "x = a < b", "x = a <= b"), "a is never b")
    [mutant] = mutants("m.py", "x = a < b")
    assert reason(mutant, "x = a < b") == "a is never b"
    assert reason(mutant, "y = a < b") == ""


def test_every_equivalent_is_a_mistake_that_can_be_made() -> None:
    places = {
        (file, *(line[2:] for line in mutant.diff(source).split("\n")))
        for file in {file for file, _, _ in EQUIVALENTS}
        for source in [(ROOT / file).read_text()]
        for mutant in mutants(file, source)
    }
    assert set(EQUIVALENTS) - places == set()
