"""Judges a mistake: runs the tests that can see it, nearest first, up to the first that catches it."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.mutation.checkouts import Checkout
from tests.mutation.mutants import Mutant
from tests.mutation.programs import CpuClock

TEST_TIMEOUT = 120
"""Seconds for a test: a mistake that makes it wait for ever is caught, too."""
BATCH = 12
"""Files of tests in a process."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
"""In pytest's summary."""
PASSED, FAILURES, NOTHING_RUN = 0, 1, 5


@dataclass(frozen=True)
class Run:
    """A run of some tests, up to the first failure."""

    code: int | None
    """Of pytest; None if the run was ended."""
    failed: str
    """The test that failed, or stood still; empty if there is none."""
    files: tuple[str, ...]
    """Those of which a test was started."""


@dataclass(frozen=True)
class Outcome:
    """The result of the tests with a mistake."""

    mutant: Mutant
    caught_by: str
    """The test that fails with the mistake and passes without it, each alone; empty when none did."""
    files: tuple[str, ...]
    """The files of tests that were run."""
    unreliable: tuple[str, ...]
    """Tests that failed with the mistake, but pass with it when alone, or fail without it."""
    seconds: float
    """CPU seconds of the tests with the mistake."""


def judge(mutant: Mutant, tests: Sequence[str], checkout: Checkout, clock: CpuClock) -> Outcome:
    """Run files of tests with a mistake, until one catches it or the clock's budget is used up."""
    unreliable: list[str] = []
    files: dict[str, None] = {}
    for begin in range(0, len(tests), BATCH):
        while not clock.is_over:
            with checkout.planted(mutant):
                run = run_tests(checkout, tests[begin : begin + BATCH], clock, without=unreliable)
            files |= dict.fromkeys(run.files)
            if not run.failed:
                break
            if is_caught(mutant, run.failed, checkout, clock):
                return Outcome(mutant, run.failed, tuple(files), tuple(unreliable), clock.used)
            if run.failed in unreliable:  # cannot be deselected: a file that cannot be read
                break
            unreliable.append(run.failed)
    return Outcome(mutant, "", tuple(files), tuple(unreliable), clock.used)


def judge_together(
    mutants: Sequence[Mutant], checkout: Checkout, processes: int, clock: CpuClock
) -> Iterator[Outcome]:
    """Run the whole suite once with all mistakes, and judge each by the tests that fail.

    Mistakes that no near test sees are few and seldom hide each other. Tests that fail without them, too, in
    the copy or beside others, say nothing. No budget: what is left are few tests.
    """
    without_end = CpuClock(math.inf, stopped=clock.stopped)
    with checkout.planted(*mutants):
        failed = run_suite(checkout, processes, without_end)
    if failed:
        fails_anyway = set(run_suite(checkout, processes, without_end.again(), failed))
        failed = [test for test in failed if test not in fails_anyway]
    for mutant in mutants:
        yield judge(mutant, failed, checkout, without_end.again())


def is_caught(mutant: Mutant, test: str, checkout: Checkout, clock: CpuClock) -> bool:
    """Return whether a test, run alone, fails with a mistake and passes without it."""
    if run_tests(checkout, [test], clock.again()).code != PASSED:
        return False
    with checkout.planted(mutant):
        return bool(run_tests(checkout, [test], clock.again()).failed)


def run_tests(
    checkout: Checkout, tests: Sequence[str], clock: CpuClock, *, without: Sequence[str] = ()
) -> Run:
    """Run tests in a copy of the checkout, up to the first that fails or stands still."""
    omitted = [f"--deselect={test}" for test in without]
    code, text = _run_pytest(checkout, ["-x", "-v", *tests, *omitted], clock)
    return Run(code, _failed(code, text, clock), _files(text))


def run_suite(checkout: Checkout, processes: int, clock: CpuClock, tests: Sequence[str] = ()) -> list[str]:
    """Run every test in a copy of the checkout, or those of a list, and return those that fail.

    Raises RuntimeError when it did not come to its end: what was not run says nothing.
    """
    options = ["--processes", str(processes), "-rfE", "-m", "not network"]
    code, text = _run_pytest(checkout, [*options, *tests], clock)
    failed = list(dict.fromkeys(match[1] for match in FAILED.finditer(text)))
    if code not in (PASSED, FAILURES) or (code == FAILURES and not failed):
        raise RuntimeError(f"pytest ended with {code}:\n{text[-2000:]}")
    return failed


def _run_pytest(checkout: Checkout, arguments: Sequence[str], clock: CpuClock) -> tuple[int | None, str]:
    command = [str(checkout.python), "-m", "pytest", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT}"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+") as output:
        code = clock.run([*command, *arguments], checkout.folder, environment, output)
        output.seek(0)
        return code, output.read()


def _failed(code: int | None, text: str, clock: CpuClock) -> str:
    if code in (PASSED, NOTHING_RUN) or (code is None and clock.is_over):
        return ""
    if summary := FAILED.search(text):
        return summary[1]
    started = _started(text)  # the program stood still or ended in this test
    return started[-1] if started else ""


def _started(text: str) -> list[str]:
    """Return the tests that pytest -v names: each once it starts."""
    lines = (line.partition("::") for line in text.splitlines() if line.startswith("tests/"))
    names = (f"{file}::{test}" for file, _, test in lines if test)
    return [re.sub(r" (?:(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*)?$", "", name) for name in names]


def _files(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(test.partition("::")[0] for test in _started(text)))
