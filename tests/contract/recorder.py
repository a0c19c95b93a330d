"""A pytest plugin: records what each passing test proves of the contract, on the wire or by its marker."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.contract.evidence import Cell, Evidence, disagreements, load, merged, save

SHOWN = "contract"
"""The property of a test's last report that has the cells it shows: the test may run in another process."""
WRITE = "TPUCTL_CONTRACT_WRITE"
"""If this variable is set, the table is written at the end; `make contract` sets it."""


class Recorder:
    """The cells that each test proves; a test's parameters count together."""

    def __init__(self) -> None:
        self._noted: set[Cell] | None = None
        """What the test that runs has shown so far; None between two."""
        self._shown: defaultdict[str, set[Cell]] = defaultdict(set)
        self._differs: dict[Cell, str] = {}
        self._passed: set[str] = set()
        self._incomplete: set[str] = set()
        """Tests of which some part failed, was skipped or was left out."""
        self._write = bool(os.environ.get(WRITE))
        self._wrong: list[str] = []

    @property
    def passed(self) -> set[str]:
        """Return the tests of which every part has passed."""
        return self._passed - self._incomplete

    def observed(self) -> dict[Cell, Evidence]:
        """Return the evidence of the tests that passed."""
        cells: dict[Cell, Evidence] = {}
        for test in sorted(self.passed):
            for cell in self._shown[test]:
                cells.setdefault(cell, Evidence(differs=self._differs.get(cell, ""))).tests.append(test)
        return cells

    def disagreements(self) -> list[str]:
        """Return where this run contradicts the table."""
        return disagreements(load(), self.observed(), self.passed)

    def note(self, method: str, client: str) -> None:
        """Note that the simulator has answered a client's request with success."""
        if self._noted is not None:
            self._noted.add((method, client))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._incomplete.update(_name(item.nodeid) for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Watch if any test may start a simulator: importing the simulator takes a second."""
        if any(
            name in item.nodeid
            for item in session.items
            for name in ("/sim/", "/cloud/", "/cli/", "/testing/")
        ):
            from tests.contract.wire import watch

            watch(self.note)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._noted = set()
        try:
            return (yield)
        finally:
            self._noted = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if report.when == "teardown":
            cells = [(method, client, "") for method, client in self._noted or ()]
            for marker in item.iter_markers("contract"):
                how = marker.kwargs.get("differs", "")
                cells += [(method, marker.kwargs["client"], how) for method in marker.args]
            report.user_properties.append((SHOWN, cells))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test shows, in whichever process it ran."""
        name = _name(report.nodeid)
        if not report.passed:
            self._incomplete.add(name)
        elif report.when == "call":
            self._passed.add(name)
        for key, cells in report.user_properties:
            if key == SHOWN:
                for method, client, how in cells:
                    self._shown[name].add((method, client))
                    if how:
                        self._differs[method, client] = how

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):  # a process that has run a part of the tests
            return
        if self._write:
            from tests.contract.document import FILE, rendered

            save(merged(load(), self.observed(), self.passed))
            FILE.write_text(rendered(load()))
        else:
            self._compare(session)

    def _compare(self, session: pytest.Session) -> None:
        """Fail the run if its evidence contradicts the table."""
        self._wrong = self.disagreements()
        if self._wrong:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why the run failed where its failures stand: after all tests, among the last lines."""
        if self._wrong:
            terminalreporter.section("docs/simulator.md and this run disagree: make contract", red=True)
            for line in self._wrong:
                terminalreporter.line(f"FAILED {line}")


def _name(test: str) -> str:
    return test.partition("[")[0]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(), "contract")
