"""A pytest plugin: which files of tests use how much processor time, their processes included.

    python -m pytest -p tests.ordering.processor_time --processes 4 ...

A process counts for the test that waits for it.
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
        self._before = 0.0
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        """Begin to count what a test uses."""
        self._before = _used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Send what a test and its fixtures have used with its last report, maybe to another process."""
        report = yield
        if report.when == "teardown":
            report.user_properties.append((KEY, _used() - self._before))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a test has used."""
        file = report.nodeid.partition("::")[0]
        for key, seconds in report.user_properties:
            if key == KEY:
                self._seconds[file] += seconds
                self._tests[file] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write which files take a while, if asked to."""
        if os.environ.get(WRITE) and not hasattr(session.config, "workerinput"):
            from tests.ordering.file_order import SLOW_FILES

            slow = slow_files(self._seconds, self._tests)
            SLOW_FILES.write_text(json.dumps(slow, indent=1, sort_keys=True) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the files that use most."""
        terminalreporter.section(f"processor time: {sum(self._seconds.values()):.0f} s")
        for file, seconds in self._seconds.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:8.1f} s  {file}")


def _used() -> float:
    """Processor seconds of this process, its children and its forks of the servers, so far."""
    from tests.forks.client import processor_seconds  # a plugin, which nobody may import before pytest does

    return sum(os.times()[:4]) + sum(processor_seconds)


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
