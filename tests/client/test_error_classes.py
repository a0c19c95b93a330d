"""Each class of errors has the exit code that docs/errors.md promises."""

from __future__ import annotations

import pytest

from tpuctl import errors
from tpuctl.errors import TpuctlError, nearest

CODES = {
    "TpuctlError": 1, "UsageError": 2, "ConfigError": 3, "StateError": 4, "NotFoundError": 4,
    "ConflictError": 4, "StockoutError": 5, "QuotaError": 6, "PreemptedError": 7, "HostError": 8,
    "DeadlineError": 9, "DeclinedError": 10, "JobFailedError": 100, "InterruptedByUser": 130,
}  # fmt: skip


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_each_error_has_its_exit_code(name: str, code: int) -> None:
    error = getattr(errors, name)("It failed.", hint="Try it.", node="n1")
    assert (error.exit_code, str(error), error.message) == (code, "It failed.", "It failed.")
    assert (error.hint, error.facts, error.result) == ("Try it.", {"node": "n1"}, {})


def test_the_python_api_has_each_of_them() -> None:
    assert sorted(errors.__all__) == sorted(CODES)


def test_a_hint_may_be_missing() -> None:
    assert (TpuctlError("x").hint, TpuctlError("x").facts) == ("", {})


def test_success_is_no_error() -> None:
    assert errors.EXIT_CODES["ok"] == 0


def test_the_nearest_names_are_three_at_most_and_the_best_comes_first() -> None:
    names = ["submit", "ab", "run13", "run123", "run12", "run1"]
    assert nearest("submt", names) == ["submit"]
    assert nearest("xyzzy", names) == []
    assert (nearest("run1", names)[0], len(nearest("run1", names))) == ("run1", 3)
    assert nearest("run1", names, most=1) == ["run1"]


@pytest.mark.parametrize(("typed", "is_near"), [("abxy", True), ("abxyz", False)])
def test_half_of_the_letters_make_a_name_near(typed: str, is_near: bool) -> None:
    assert nearest(typed, ["abcd"]) == (["abcd"] if is_near else [])
