"""A pytest plugin: which files of tests use how much processor time, their processes included.

    python -m pytest -p tests.ordering.processor_time -n 4 --dist loadfile ...

A process counts for the test that waits for it. Each process of pytest-xdist sends its part at its end.
With the variable TPUCTL_TIMES_WRITE the files that take a while are written to slow_files.json, which says
what `make test-fast` leaves out.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

SHOWN = 60
KEY = "processor_time"
WRITE = "TPUCTL_TIMES_WRITE"
SECONDS = 0.3
SECONDS_PER_TEST = 0.005
"""A file takes a while if it uses more than both."""


class ProcessorTime:
    """Sums up the seconds by file."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count what a test and its fixtures use."""
        before = sum(os.times()[:4])
        result = yield
        file = item.nodeid.partition("::")[0]
        self._seconds[file] += sum(os.times()[:4]) - before
        self._tests[file] += 1
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the sums to the process that leads the run."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[KEY] = [dict(self._seconds), dict(self._tests)]
        elif os.environ.get(WRITE):
            from tests.ordering.file_order import SLOW_FILES

            slow = slow_files(self._seconds, self._tests)
            SLOW_FILES.write_text(json.dumps(slow, indent=1, sort_keys=True) + "\n")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add the sums of another process."""
        seconds, tests = getattr(node, "workeroutput", {}).get(KEY, ({}, {}))
        self._seconds.update(seconds)
        self._tests.update(tests)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the files that use most."""
        terminalreporter.section(f"processor time: {sum(self._seconds.values()):.0f} s")
        for file, seconds in self._seconds.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:8.1f} s  {file}")


def slow_files(seconds: Mapping[str, float], tests: Mapping[str, int]) -> dict[str, float]:
    """Return which files take a while, beside those that are known to take longest."""
    from tests.ordering.file_order import LONG  # a plugin, which nobody may import before pytest does

    return {
        file: round(used, 1)
        for file, used in seconds.items()
        if not file.startswith(LONG) and used > max(SECONDS, SECONDS_PER_TEST * tests[file])
    }


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.pluginmanager.register(ProcessorTime(), KEY)
