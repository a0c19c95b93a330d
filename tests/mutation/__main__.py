"""`make mutate`: make one-line mistakes in the code of a change, and see whether a test fails.

    python -m tests.mutation --base main --count 20          # in the files that differ from main
    python -m tests.mutation --under tpuctl/flows --count 60 # in the files below some folders
    python -m tests.mutation --all --seed 1 --count 60       # in the whole package, for a score
    python -m tests.mutation --all --seed 1 --count 60 --suite   # survivors of near tests meet all tests

A seeded sample: the same seed, code and files give the same mistakes. Each is made in a copy of the checkout,
where the tests that can see the line are run, nearest first, up to the first that catches it: alone, it fails
with the mistake and passes without it. What they do not catch within some CPU seconds counts as a survivor;
with --suite, only what the whole suite does not catch either: it is run once with all of them together, and
what fails then is tried with each alone.
Prints each mistake; with each survivor, the line as it was and as it is, and the tests that were tried. The
last line is the result as JSON. Exits with 1 when one survived.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from tests.mutation.checkouts import Checkout, checkouts
from tests.mutation.equivalents import reason
from tests.mutation.judging import Outcome, judge, judge_together
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.programs import CpuClock
from tests.mutation.ranking import ranked
from tests.paths import ROOT


def main() -> int:
    """Run the command line and return its exit code."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    files = _files(arguments)
    sample = chosen(files, arguments.count, arguments.seed)
    print(f"{len(sample)} mistakes in {len(files)} files, seed {arguments.seed}", file=sys.stderr)
    outcomes = list(_judged(sample, arguments.processes, arguments.budget, suite=arguments.suite))
    result = summary(arguments.seed, outcomes)
    text = json.dumps(result)
    print(text)
    if arguments.json:
        arguments.json.write(text + "\n")
    return 1 if result["survivors"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base", default="main", help="commit that the change is compared with")
    parser.add_argument("--under", nargs="*", help="files and folders, instead of those that have changed")
    parser.add_argument("--all", action="store_true", help="the whole package")
    parser.add_argument("--without", nargs="*", default=[], help="files and folders to leave out")
    parser.add_argument("--count", type=int, default=20, help="mistakes to make")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the sample")
    parser.add_argument("--processes", type=int, default=2, help="mistakes at the same time")
    parser.add_argument("--budget", type=float, default=120.0, help="CPU seconds of tests for a mistake")
    parser.add_argument("--suite", action="store_true", help="run all tests with what near ones do not catch")
    parser.add_argument("--json", type=argparse.FileType("w"), help="file for the result")
    return parser


def chosen(files: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return a sample of the mistakes in some files, every place as likely as every other.

    Those that change no behaviour, by the table of equivalents, are not among them.
    """
    every = [
        mutant
        for file in sorted(files)
        for source in [(ROOT / file).read_text()]
        for mutant in mutants(file, source)
        if not reason(mutant, source)
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def summary(seed: int, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the share that was caught, and each survivor with its line and the tests that were tried."""
    survivors = [outcome for outcome in outcomes if not outcome.caught_by]
    return {
        "seed": seed,
        "mutants": len(outcomes),
        "caught": round(1 - len(survivors) / len(outcomes), 3) if outcomes else 1.0,
        "cpu_seconds": round(sum(outcome.seconds for outcome in outcomes)),
        "survivors": [
            {
                "place": f"{outcome.mutant.file}:{outcome.mutant.line}",
                "diff": outcome.mutant.diff((ROOT / outcome.mutant.file).read_text()),
                "tests": outcome.files,
                "unreliable": outcome.unreliable,
            }
            for outcome in survivors
        ],
    }


def _files(arguments: argparse.Namespace) -> list[str]:
    if arguments.under or arguments.all:
        names = _git("ls-files", "--", *(arguments.under or ["tpuctl"]))
    else:
        names = _git("diff", "--name-only", "--diff-filter=d", arguments.base, "--", "tpuctl")
    left_out = tuple(name.rstrip("/") + "/" for name in arguments.without)
    return [name for name in names if name.endswith(".py") and not f"{name}/".startswith(left_out)]


def _git(*command: str) -> list[str]:
    return subprocess.run(
        ["git", *command], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def _judged(
    sample: Sequence[Mutant], processes: int, budget: float, *, suite: bool = False
) -> Iterator[Outcome]:
    """Yield the outcome of each mistake as it is known, and show it."""
    with checkouts(processes) as copies, ThreadPoolExecutor(processes) as pool:
        free: SimpleQueue[Checkout] = SimpleQueue()
        stopped = threading.Event()
        for copy in copies:
            free.put(copy)

        def outcome_of(mutant: Mutant) -> Outcome:
            copy, clock = free.get(), CpuClock(budget, stopped=stopped)
            try:
                return judge(mutant, ranked(mutant.file, mutant.line), copy, clock)
            finally:
                free.put(copy)

        survivors = []
        try:
            for outcome in pool.map(outcome_of, sample):
                print(_lines(outcome), file=sys.stderr, flush=True)
                if suite and not outcome.caught_by:
                    survivors.append(outcome.mutant)
                else:
                    yield outcome
            if survivors:
                print(f"the whole suite with {len(survivors)} of them", file=sys.stderr, flush=True)
                clock = CpuClock(budget, stopped=stopped)
                for outcome in judge_together(survivors, copies[0], 2 * processes, clock):
                    print(_lines(outcome), file=sys.stderr, flush=True)
                    yield outcome
        finally:  # else an interrupt would wait for the tests that run
            stopped.set()


def _lines(outcome: Outcome) -> str:
    """What is shown of a mistake."""
    head = f"{outcome.mutant}  {outcome.seconds:.0f} CPU s"
    tail = [f"  fails without the mistake, or not alone: {test}" for test in outcome.unreliable]
    if outcome.caught_by:
        return "\n".join([f"{head}  caught by {outcome.caught_by}", *tail])
    diff = outcome.mutant.diff((ROOT / outcome.mutant.file).read_text())
    tried = f"  tried: {' '.join(outcome.files) or 'no test'}"
    return "\n".join([f"{head}  SURVIVED", *(f"  {line}" for line in diff.splitlines()), tried, *tail])


if __name__ == "__main__":
    sys.exit(main())
