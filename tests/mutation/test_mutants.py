"""The mistakes that `make mutate` makes."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import mutants
from tests.mutation.reach import reaching
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


def test_every_module_has_tests_that_can_see_it() -> None:
    modules = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tpuctl").rglob("*.py")]
    assert [module for module in modules if not reaching(module)] == []


def test_the_own_tests_of_a_module_come_first() -> None:
    assert reaching("tpuctl/clock.py")[0] == ROOT / "tests/test_clock.py"
    assert ROOT / "tests/cli" in reaching("tpuctl/flows/runs/submission/submit.py")
