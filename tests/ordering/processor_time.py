"""A pytest plugin: which files of tests use how much processor time, their processes included.

    python -m pytest -p tests.ordering.processor_time -n 4 --dist loadfile ...

A process counts for the test that waits for it. Each process of pytest-xdist sends its part at its end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

SHOWN = 60
KEY = "processor_time"


class ProcessorTime:
    """Sums up the seconds by file."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count what a test and its fixtures use."""
        before = sum(os.times()[:4])
        result = yield
        self._seconds[item.nodeid.partition("::")[0]] += sum(os.times()[:4]) - before
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the sums to the process that leads the run."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[KEY] = dict(self._seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add the sums of another process."""
        self._seconds.update(getattr(node, "workeroutput", {}).get(KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the files that use most."""
        terminalreporter.section(f"processor time: {sum(self._seconds.values()):.0f} s")
        for file, seconds in self._seconds.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:8.1f} s  {file}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.pluginmanager.register(ProcessorTime(), KEY)
