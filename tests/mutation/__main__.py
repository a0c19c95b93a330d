"""`make mutate`: make one-line mistakes in the code of a change, and see whether a test fails.

    python -m tests.mutation --base main --count 20          # in the files that differ from main
    python -m tests.mutation --under tpuctl/flows --count 60 # in the files below some folders

A seeded sample: the same seed, code and files give the same mistakes. Each is made in a copy of the checkout,
where the tests that can see the file are run, nearest first, up to the first that fails, which then has to
pass without the mistake. Prints each mistake, then the survivors and the share that was caught as JSON; exits
with 1 when a mistake survived.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.reach import reaching
from tests.paths import ROOT

LIMIT = 900
"""Seconds for the tests of one mistake: one that never ends is caught, too."""
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


def main() -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__.split("\n")[0])
    parser.add_argument("--base", default="main", help="commit that the change is compared with")
    parser.add_argument("--under", nargs="*", help="files and folders, instead of those that have changed")
    parser.add_argument("--count", type=int, default=20, help="mistakes to make")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the sample")
    parser.add_argument("--processes", type=int, default=2, help="mistakes at the same time")
    arguments = parser.parse_args()
    files = _below(arguments.under) if arguments.under else _changed(arguments.base)
    sample = chosen(files, arguments.count, arguments.seed)
    print(f"{len(sample)} mistakes in {len(files)} files, seed {arguments.seed}", file=sys.stderr)
    outcomes = list(_judged(sample, arguments.processes))
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


def _judged(sample: Sequence[Mutant], processes: int) -> Iterator[Outcome]:
    """Yield the outcome of each mistake as it is known, and show it."""
    with _copies(processes) as copies, ThreadPoolExecutor(processes) as pool:

        def judge(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return _outcome(mutant, copy)
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


def _outcome(mutant: Mutant, copy: Path) -> Outcome:
    begin = time.monotonic()
    for tests in reaching(mutant.file):
        failure = _failure_by(mutant, copy, str(tests.relative_to(ROOT)), begin)
        if failure:
            return Outcome(mutant, failure, time.monotonic() - begin)
    return Outcome(mutant, "", time.monotonic() - begin)


def _failure_by(mutant: Mutant, copy: Path, tests: str, begin: float) -> str:
    """Return the first test that fails with a mistake and passes without it; empty if there is none."""
    unreliable: list[str] = []
    while True:
        with _planted(mutant, copy):
            failure = _failure(copy, tests, begin, without=unreliable)
        if "::" not in failure or failure in unreliable or not _failure(copy, failure, time.monotonic()):
            return failure
        print(f"{failure} fails without a mistake, too", file=sys.stderr)
        unreliable.append(failure)


@contextmanager
def _planted(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Have the mistake in a copy while the block runs."""
    source = (ROOT / mutant.file).read_text()
    (copy / mutant.file).write_text(mutant.applied(source))
    try:
        yield
    finally:
        (copy / mutant.file).write_text(source)


def _failure(copy: Path, tests: str, begin: float, *, without: Sequence[str] = ()) -> str:
    """Return the first test that fails in a copy, or how the run ended instead; empty if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120", tests]
    omitted = [f"--deselect={test}" for test in without] + [f"--ignore={file}" for file in LEFT_OUT]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [*command, *omitted],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=max(1.0, LIMIT - (time.monotonic() - begin)),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT} s"
    if run.returncode in (0, 5):  # 5: no test here that is not slow
        return ""
    failed = FAILED.search(run.stdout)
    return failed[1] if failed else f"exit code {run.returncode}"


if __name__ == "__main__":
    sys.exit(main())
