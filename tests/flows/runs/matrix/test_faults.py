"""What befalls a run in each phase, on one host and on four: it ends rightly, in time, and leaves nothing.

    python -m pytest tests/flows/runs/matrix --processes 4

prints the whole matrix as a table. Times are between times of the bucket. Where the product waits for
minutes, its times are divided by FACTOR, on hosts and in readers, and what befalls the run is as much
shorter. Each fault meets every fourth phase, on one host or on four in turn, and the barrier; with
TPUCTL_EVERY set, all phases on both.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.flows.runs.matrix import programs
from tests.flows.runs.matrix.phases import (
    ALL,
    BARRIER,
    ENDING,
    INSTALLING,
    LINES,
    RUNNING,
    SAVING,
)
from tests.flows.runs.matrix.site import Site
from tests.flows.runs.matrix.table import FAULTS, reason_against
from tests.paths import ROOT
from tpuctl import clock
from tpuctl.runs import Verdict

QUICK = {
    ("kill -9 of the script", RUNNING, 4), ("kill -9 of the supervisor", BARRIER, 4),
    ("kill -9 of the supervisor", ENDING, 1), ("preemption", INSTALLING, 1), ("reboot", RUNNING, 1),
    ("storm of 503", BARRIER, 4), ("bucket deleted", RUNNING, 1),
}  # fmt: skip
BUSY = 45.0
"""Seconds that a busy machine may add: they say nothing about the product."""
CELLS = [
    pytest.param(
        fault, phase, hosts,
        marks=() if (fault, phase, hosts) in QUICK else pytest.mark.slow, id=f"{fault}-{phase}-{hosts}",
    )
    for row, fault in enumerate(FAULTS)
    for column, phase in enumerate(ALL)
    for hosts in (1, 4)
    if not reason_against(fault, phase, hosts)
    and (
        ((row + column) % 8, hosts) in ((0, 1), (4, 4))
        or phase == BARRIER
        or (fault, phase, hosts) in QUICK
        or "TPUCTL_EVERY" in os.environ
    )
]  # fmt: skip


@pytest.mark.filterwarnings(  # of a connection to the simulator that a partition cuts: asyncio drops it
    "ignore:.*_SSLProtocolTransport:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.spread
@pytest.mark.parametrize(("fault", "phase", "hosts"), CELLS)
def test_a_run_ends_rightly_and_leaves_nothing(
    make_site: Callable[[int], Site], record_property: Callable[[str, object], None],
    fault: str, phase: str, hosts: int,
) -> None:  # fmt: skip
    site, row = make_site(hosts), FAULTS[fault]
    expected = (row.several if hosts > 1 else {}).get(phase) or row.endings[phase]
    row.begin(site)
    site.start(phase)
    since = site.cloud.bucket.now()
    row.act(site)
    if phase in row.goes_on:
        site.go_on()
    verdict = site.verdict(expected.meanwhile)
    assert verdict.outcome == expected.outcome, f"{verdict.evidence}\n{site.supervisor_logs()}"
    assert expected.words in verdict.evidence
    seconds = (clock.parse(verdict.decided) - since).total_seconds()
    limit = (row.lasts + row.within) / (programs.FACTOR if row.is_shortened else 1)
    record_property("cell", (fault, phase, hosts, verdict.outcome, max(0.0, seconds)))
    assert seconds <= limit + BUSY
    if expected.once_back:
        site.simulator.faults.clear()
        site.until(lambda: outcome_of(site) == expected.once_back, expected.once_back)
    site.until(site.is_clean, "the end of everything that was started")
    if row.loses_log:
        assert all(site.own_lines(worker) in LINES for worker in range(hosts))
    else:
        check_logs(site, phase, is_complete=not (row.ends_hosts or row.hides_end))


def outcome_of(site: Site) -> str:
    verdict: Verdict | None = site.state().verdict
    return verdict.outcome if verdict else ""


def check_logs(site: Site, phase: str, *, is_complete: bool) -> None:
    """Check that no line is doubled or missing before another, and none at the end where all is said."""
    if is_complete:
        site.until(site.have_all_finished, "the last words")
    for worker in range(site.hosts):
        own = site.own_lines(worker)
        assert LINES.startswith(own)
        if is_complete and phase in (RUNNING, SAVING, ENDING):
            assert own == LINES


def test_the_times_are_those_of_the_document() -> None:
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "docs/runs.md").read_text().splitlines()]
    stated = {row[0]: row[-1] for row in rows if row[0] in FAULTS}
    assert stated == {name: shown(fault.within) for name, fault in FAULTS.items()}


def shown(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
