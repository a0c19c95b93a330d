"""The site of a test, and the matrix as a table once its tests are over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.flows.runs.matrix.phases import ALL
from tests.flows.runs.matrix.site import Site
from tests.flows.runs.matrix.table import FAULTS, reason_against
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud

CELL = "cell"
WIDTH = 17


@pytest.fixture
def make_site(
    tpuctl: Callable[..., CommandResult], cloud: Cloud, simulator: RunningSimulator, monkeypatch
) -> Iterator[Callable[[int], Site]]:
    """Make the site of a test; it is left clean."""
    sites = list[Site]()

    def make(hosts: int) -> Site:
        sites.append(Site(tpuctl, cloud, simulator, monkeypatch, hosts))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a row for each fault and number of hosts: how the run ended in each phase, and after how long."""
    cells = dict[tuple[str, str, int], str]()
    for report in (each for kind in ("passed", "failed") for each in terminalreporter.getreports(kind)):
        for name, value in report.user_properties:
            if name == CELL:
                fault, phase, hosts, outcome, seconds = value
                mark = "" if report.passed else "!"
                cells[fault, phase, hosts] = f"{mark}{outcome} {seconds:.0f} s"
    if cells:
        terminalreporter.section("runs: fault x phase")
        for line in _lines(cells):
            terminalreporter.write_line(line)


def _lines(cells: dict[tuple[str, str, int], str]) -> Iterator[str]:
    reasons = list[str]()
    yield _row("fault", "hosts", ALL)
    rows = {(fault, hosts) for fault, _, hosts in cells}
    for fault in FAULTS:
        for hosts in (1, 4):
            if (fault, hosts) not in rows:
                continue
            texts = list[str]()
            for phase in ALL:
                reason = reason_against(fault, phase, hosts)
                if reason and reason not in reasons:
                    reasons.append(reason)
                shown = f"- ({reasons.index(reason) + 1})" if reason else "not run"
                texts.append(cells.get((fault, phase, hosts), shown))
            yield _row(fault, str(hosts), texts)
    for number, reason in enumerate(reasons, start=1):
        yield f"({number}) impossible: {reason}"


def _row(fault: str, hosts: str, texts: tuple[str, ...] | list[str]) -> str:
    return f"{fault:30}{hosts:>5}  {''.join(f'{text:{WIDTH}}' for text in texts)}".rstrip()
