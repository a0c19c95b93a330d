"""`make mutate`: make one-line mistakes in the code of a change, and see whether a test fails.

    python -m tests.mutation --base main --count 20          # in the files that differ from main
    python -m tests.mutation --under tpuctl/flows --count 60 # in the files below some folders

A seeded sample: the same seed, code and files give the same mistakes. Each is made in a copy of the checkout,
where the tests that can see the file are run, nearest first, up to the first that fails, which then has to
pass without the mistake. What the nearest tests do not catch within some CPU seconds counts as a survivor.
Prints each mistake, then the survivors and the share that was caught as JSON; exits with 1 when one survived.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import psutil

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.reach import reaching
from tests.paths import ROOT

TEST_TIMEOUT = 120
"""Seconds for one test: a mistake that makes it wait for ever is caught, too."""
LOOK_INTERVAL = 0.5
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
"""In pytest's summary."""
LEFT_OUT = ("tests/cli/runs/test_digits.py",)
"""The demo takes a minute or two: a mistake that it alone would catch counts as a survivor."""


@dataclass(frozen=True)
class Outcome:
    """The result of the tests with a mistake."""

    mutant: Mutant
    caught_by: str
    """The first test that failed; empty when none did."""
    seconds: float


class CpuClock:
    """Counts the CPU seconds of programs and of what they start, whatever else the machine does."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._used = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return self._used >= self.budget

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], output: IO[str]
    ) -> int | None:
        """Run a program and return its exit code; ends it and returns None once the budget is used up."""
        before = self._used
        process = psutil.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        while True:
            try:
                return int(process.wait(LOOK_INTERVAL))
            except psutil.TimeoutExpired:
                self._used = before + _cpu_seconds(process)
            if self.is_over:
                _end(process)
                return None


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants, those that have ended included."""
    seconds = 0.0
    for member in (process, *_descendants(process)):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(member.cpu_times()[:4])
    return seconds


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _end(process: psutil.Popen) -> None:
    for member in (*_descendants(process), process):
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


def main() -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__.split("\n")[0])
    parser.add_argument("--base", default="main", help="commit that the change is compared with")
    parser.add_argument("--under", nargs="*", help="files and folders, instead of those that have changed")
    parser.add_argument("--count", type=int, default=20, help="mistakes to make")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the sample")
    parser.add_argument("--processes", type=int, default=2, help="mistakes at the same time")
    parser.add_argument("--budget", type=float, default=300.0, help="CPU seconds of tests for a mistake")
    arguments = parser.parse_args()
    files = _below(arguments.under) if arguments.under else _changed(arguments.base)
    sample = chosen(files, arguments.count, arguments.seed)
    print(f"{len(sample)} mistakes in {len(files)} files, seed {arguments.seed}", file=sys.stderr)
    outcomes = list(_judged(sample, arguments.processes, arguments.budget))
    survivors = [str(outcome.mutant) for outcome in outcomes if not outcome.caught_by]
    share = 1 - len(survivors) / len(outcomes) if outcomes else 1.0
    print(
        json.dumps(
            {
                "seed": arguments.seed,
                "mutants": len(outcomes),
                "caught": round(share, 3),
                "survivors": survivors,
            }
        )
    )
    return 1 if survivors else 0


def chosen(files: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return a sample of the mistakes in some files, every place as likely as every other."""
    every = [mutant for file in sorted(files) for mutant in mutants(file, (ROOT / file).read_text())]
    return random.Random(seed).sample(every, min(count, len(every)))


def _changed(base: str) -> list[str]:
    command = ["git", "diff", "--name-only", "--diff-filter=d", base, "--", "tpuctl"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if name.endswith(".py")]


def _below(places: Sequence[str]) -> list[str]:
    command = ["git", "ls-files", "--", *places]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if name.endswith(".py")]


def _judged(sample: Sequence[Mutant], processes: int, budget: float) -> Iterator[Outcome]:
    """Yield the outcome of each mistake as it is known, and show it."""
    with _copies(processes) as copies, ThreadPoolExecutor(processes) as pool:

        def judge(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return _outcome(mutant, copy, budget)
            finally:
                copies.put(copy)

        for outcome in pool.map(judge, sample):
            verdict = f"caught by {outcome.caught_by}" if outcome.caught_by else "SURVIVED"
            print(f"{outcome.mutant}  {verdict}  {outcome.seconds:.0f}s", file=sys.stderr, flush=True)
            yield outcome


@contextmanager
def _copies(number: int) -> Iterator[SimpleQueue[Path]]:
    """Copies of the files that git knows, as they are now."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for copy in (Path(folder, str(index)) for index in range(number)):
            for name in filter(None, names):
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, copy / name)
            copies.put(copy)
        yield copies


def _outcome(mutant: Mutant, copy: Path, budget: float) -> Outcome:
    begin = time.monotonic()
    clock = CpuClock(budget)
    for tests in reaching(mutant.file):
        failure = _failure_by(mutant, copy, str(tests.relative_to(ROOT)), clock)
        if failure or clock.is_over:
            return Outcome(mutant, failure, time.monotonic() - begin)
    return Outcome(mutant, "", time.monotonic() - begin)


def _failure_by(mutant: Mutant, copy: Path, tests: str, clock: CpuClock) -> str:
    """Return the first test that fails with a mistake and passes without it; empty if there is none."""
    unreliable: list[str] = []
    while not clock.is_over:
        with _planted(mutant, copy):
            failure = _failure(copy, tests, clock, without=unreliable)
        if "::" not in failure or failure in unreliable:
            return failure
        if not _failure(copy, failure, CpuClock(clock.budget)):
            return failure
        print(f"{failure} fails without a mistake, too", file=sys.stderr)
        unreliable.append(failure)
    return ""


@contextmanager
def _planted(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Have the mistake in a copy while the block runs."""
    source = (ROOT / mutant.file).read_text()
    (copy / mutant.file).write_text(mutant.applied(source))
    try:
        yield
    finally:
        (copy / mutant.file).write_text(source)


def _failure(copy: Path, tests: str, clock: CpuClock, *, without: Sequence[str] = ()) -> str:
    """Return the first test that fails in a copy, or how the run ended instead; empty if all pass."""
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT}"]
    omitted = [f"--deselect={test}" for test in without] + [f"--ignore={file}" for file in LEFT_OUT]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+") as output:
        code = clock.run(
            [sys.executable, "-m", "pytest", *options, tests, *omitted], copy, environment, output
        )
        output.seek(0)
        text = output.read()
    if code in (None, 0, 5):  # None: the budget is used up. 5: no test here that is not slow
        return ""
    failed = FAILED.search(text)
    return failed[1] if failed else f"exit code {code}"


if __name__ == "__main__":
    sys.exit(main())
