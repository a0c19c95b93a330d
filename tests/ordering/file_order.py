"""A pytest plugin: which tests `make test` and `make test-fast` leave out, by the time that they take.

`TPUCTL_TIMES_WRITE=1 make test-all` measures them for seconds.json, on a machine that does nothing else.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pytest

from tests.paths import ROOT

FILE = Path(__file__).with_name("seconds.json")
MEASURED: dict[str, dict[str, tuple[float, int]]] = json.loads(FILE.read_text())
"""File -> test -> seconds of all its cases, and how many they are."""
DAILY = 0.8
"""Seconds of a file that `make test` runs, besides its first test."""
FIRST = 6.0
"""Seconds from which a test is left to test-all even if it is the first or the quickest of its file."""
LONG = 2.0
"""Seconds of a file that `make test-fast` leaves out."""
SHORTEST = 0.5
"""Seconds of what is written down."""
WRITE = "TPUCTL_TIMES_WRITE"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of which no test is to run."""
    file = os.path.relpath(collection_path, ROOT)
    return ("not long" in config.getoption("markexpr") and is_long(file)) or None


def is_long(file: str) -> bool:
    """Return whether `make test-fast` leaves out a file, given by its path."""
    return sum(seconds for seconds, _ in MEASURED.get(file, {}).values()) > LONG


def seconds_of(item: pytest.Item) -> float:
    """Return what a test takes."""
    name = item.nodeid.partition("::")[2].partition("[")[0]
    seconds, cases = MEASURED.get(file_of(item), {}).get(name, (0.0, 1))
    return seconds / cases


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of files that take long, and what is left out of `make test`."""
    for file, group in groupby(items, key=file_of):
        tests = [item for item in group if not item.get_closest_marker("slow")]
        kept = daily([seconds_of(item) for item in tests])
        for place, item in enumerate(tests):
            if place not in kept and not item.get_closest_marker("daily"):
                item.add_marker("slow")
            if is_long(file):
                item.add_marker("long")


def daily(seconds: Sequence[float]) -> set[int]:
    """Return which tests of a file `make test` runs, by their places: the first, and the shortest others.

    The first test of a file is its main path, unless it takes very long: then it is the quickest. Of several
    that take as long as each other the first count.
    """
    places = range(len(seconds))
    others = sorted(places[1:], key=lambda place: seconds[place])
    kept = set([place for place in [*places[:1], *others] if seconds[place] <= FIRST][:1])
    left = DAILY
    for place in others:
        left -= seconds[place]
        if left >= 0:
            kept.add(place)
    return kept


def file_of(item: pytest.Item) -> str:
    """Return the path of a test's file in the checkout."""
    return item.nodeid.partition("::")[0]


class Times:
    """Sums up the seconds by test."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._cases: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a phase of a test took."""
        name = report.nodeid.partition("[")[0]
        self._seconds[name] += report.duration
        self._cases[name] += report.when == "setup"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the times of the tests that have run; those of others stay."""
        if hasattr(session.config, "workerinput"):
            return
        for name, seconds in self._seconds.items():
            file, _, test = name.partition("::")
            MEASURED.setdefault(file, {})[test] = round(seconds, 1), self._cases[name]
        there = {file: tests for file, tests in sorted(MEASURED.items()) if (ROOT / file).exists()}
        FILE.write_text(written(there))


def written(measured: Mapping[str, Mapping[str, tuple[float, int]]]) -> str:
    """Return the text of seconds.json: a line a test, none for those that take next to nothing."""
    files = []
    for file, tests in measured.items():
        rows = [
            f'  "{name}": [{seconds}, {cases}]'
            for name, (seconds, cases) in sorted(tests.items())
            if seconds >= SHORTEST
        ]
        if rows:
            files.append(f' "{file}": {{\n' + ",\n".join(rows) + "\n }")
    return "{\n" + ",\n".join(files) + "\n}\n"


def pytest_configure(config: pytest.Config) -> None:
    """Measure the times if asked to."""
    if os.environ.get(WRITE):
        config.pluginmanager.register(Times())
