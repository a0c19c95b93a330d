"""A pytest plugin: records what each passing test proves of the contract, on the wire or by its marker."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.evidence import Cell, Evidence, disagreements, load, merged, save

KEY_OF_PROCESS = "contract"
"""The name under which a process of pytest-xdist returns its records."""
LAST = "test_what_this_run_has_shown_is_what_the_table_says"
WRITE = "TPUCTL_CONTRACT_WRITE"
"""If this variable is set, the table is written at the end; `make contract` sets it."""


class Recorder:
    """The cells that each test proves; a test's parameters count together."""

    def __init__(self, *, is_part_of_a_run: bool = False) -> None:
        self.is_part_of_a_run = is_part_of_a_run
        """Whether this is a process of pytest-xdist, which sees some tests, and some parameters of a test."""
        self._current = ""
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
        if self._current:
            self._shown[self._current].add((method, client))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the comparison last."""
        items.sort(key=lambda item: item.name == LAST)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._incomplete.update(_name(item) for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Watch if any test may start a simulator: importing the simulator takes a second."""
        if any(
            name in _name(item)
            for item in session.items
            for name in ("/sim/", "/cloud/", "/cli/", "/testing/")
        ):
            from tests.contract.wire import watch

            watch(self.note)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._current = _name(item)
        try:
            return (yield)
        finally:
            self._current = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if report.when == "call" and report.passed:
            self._passed.add(_name(item))
            for marker in item.iter_markers("contract"):
                for method in marker.args:
                    cell = (method, marker.kwargs["client"])
                    self._shown[_name(item)].add(cell)
                    self._differs[cell] = marker.kwargs.get("differs", "")
        elif not report.passed:
            self._incomplete.add(_name(item))
        return report

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the records of a process of pytest-xdist."""
        output = getattr(node, "workeroutput", {}).get(KEY_OF_PROCESS)
        if output is None:
            return
        self._passed.update(output["passed"])
        self._incomplete.update(output["not"])
        for test, cells in output["shown"].items():
            self._shown[test].update(map(tuple, cells))
        self._differs.update({(method, client): how for method, client, how in output["differs"]})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[KEY_OF_PROCESS] = self._as_lists()
        elif self._write:
            from tests.contract.document import FILE, rendered

            save(merged(load(), self.observed(), self.passed))
            FILE.write_text(rendered(load()))
        elif session.config.getoption("numprocesses", None):
            self._compare(session)

    def _as_lists(self) -> dict[str, object]:
        """Return the records as plain lists."""
        return {
            "passed": sorted(self._passed),
            "not": sorted(self._incomplete),
            "shown": {test: sorted(cells) for test, cells in self._shown.items()},
            "differs": [[*cell, how] for cell, how in self._differs.items()],
        }

    def _compare(self, session: pytest.Session) -> None:
        """Fail the run if the evidence of all its processes contradicts the table."""
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


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


KEY = pytest.StashKey[Recorder]()


def pytest_configure(config: pytest.Config) -> None:
    recorder = Recorder(is_part_of_a_run=hasattr(config, "workerinput"))
    config.stash[KEY] = recorder
    config.pluginmanager.register(recorder, "contract")


@pytest.fixture
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """The evidence of this run so far."""
    return request.config.stash[KEY]
