"""A pytest plugin: what each test that passes has shown of the contract, on the wire or by its marker."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.evidence import Cell, Shown, disagreements, load, merged, save

KEY_OF_PROCESS = "contract"
"""What a process of pytest-xdist tells under this name."""
LAST = "test_what_this_run_has_shown_is_what_the_table_says"
WRITE = "TPUCTL_CONTRACT_WRITE"
"""Variable that has the table written at the end; `make contract` sets it."""


class Recorder:
    """What was shown, test by test; a test's parameters count together."""

    def __init__(self) -> None:
        self._current = ""
        self._shown: defaultdict[str, set[Cell]] = defaultdict(set)
        self._differs: dict[Cell, str] = {}
        self._passed: set[str] = set()
        self._not: set[str] = set()
        """Tests of which some part failed, was skipped or was left out."""
        self._write = bool(os.environ.get(WRITE))

    @property
    def passed(self) -> set[str]:
        """Return the tests of which every part has passed."""
        return self._passed - self._not

    def seen(self) -> dict[Cell, Shown]:
        """Return what the tests that passed have shown."""
        cells: dict[Cell, Shown] = {}
        for test in sorted(self.passed):
            for cell in self._shown[test]:
                cells.setdefault(cell, Shown(differs=self._differs.get(cell, ""))).tests.append(test)
        return cells

    def note(self, method: str, client: str) -> None:
        """Note that the simulator has answered a client's request with success."""
        if self._current:
            self._shown[self._current].add((method, client))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the comparison last."""
        items.sort(key=lambda item: item.name == LAST)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._not.update(_name(item) for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Watch, where any test may start a simulator: importing it takes a second."""
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
            self._not.add(_name(item))
        return report

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process of pytest-xdist has recorded."""
        told = getattr(node, "workeroutput", {}).get(KEY_OF_PROCESS)
        if told is None:
            return
        self._passed.update(told["passed"])
        self._not.update(told["not"])
        for test, cells in told["shown"].items():
            self._shown[test].update(map(tuple, cells))
        self._differs.update({(method, client): how for method, client, how in told["differs"]})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[KEY_OF_PROCESS] = self._told()
        elif self._write:
            from tests.contract.document import FILE, rendered

            save(merged(load(), self.seen(), self.passed))
            FILE.write_text(rendered(load()))
        elif session.config.getoption("numprocesses", None):
            self._compared(session)

    def _told(self) -> dict[str, object]:
        """Return what was recorded, as plain lists."""
        return {
            "passed": sorted(self._passed),
            "not": sorted(self._not),
            "shown": {test: sorted(cells) for test, cells in self._shown.items()},
            "differs": [[*cell, how] for cell, how in self._differs.items()],
        }

    def _compared(self, session: pytest.Session) -> None:
        """Fail the run if what all its processes have shown contradicts the table."""
        wrong = disagreements(load(), self.seen(), self.passed)
        if wrong:
            print("\ndocs/simulator.md and this run disagree:", *wrong, sep="\n")
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


KEY = pytest.StashKey[Recorder]()


def pytest_configure(config: pytest.Config) -> None:
    recorder = Recorder()
    config.stash[KEY] = recorder
    config.pluginmanager.register(recorder, "contract")


@pytest.fixture
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """What this run has shown so far."""
    return request.config.stash[KEY]
