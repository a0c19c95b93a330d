"""What befalls a run in each phase, on one host and on four: it ends rightly and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.flows.runs.matrix.site import (
    BARRIER,
    ENDING,
    INSTALLING,
    LINES,
    RUNNING,
    SAVING,
    Site,
)
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cloud.endpoints import Cloud

KILLED = "the program that runs the script was ended by SIGKILL"
ALL = (INSTALLING, BARRIER, RUNNING, SAVING, ENDING)
FAULTS: dict[str, tuple[Callable[[Site], None], dict[str, tuple[str, str]]]] = {
    # fault: what it does, and for each phase how the run ends then, with words of the evidence
    "kill of the script": (
        Site.kill_script,
        {RUNNING: (runs.FAILED, "script was ended by SIGKILL"), SAVING: (runs.STOPPED, "ada@example.com")},
    ),
    "kill of the supervisor": (
        Site.kill_supervisor,
        {
            **dict.fromkeys((INSTALLING, BARRIER), (runs.FAILED, f"could not start: {KILLED}")),
            RUNNING: (runs.FAILED, KILLED),
            SAVING: (runs.STOPPED, "ada@example.com"),
            ENDING: (runs.SUCCEEDED, ""),
        },
    ),
    "preemption": (lambda site: site.add("preemption", notice=0.5), dict.fromkeys(ALL, (runs.PREEMPTED, ""))),
    "reboot": (
        lambda site: site.add("maintenance", notice=0.5),
        {**dict.fromkeys(ALL, (runs.MAINTENANCE, "")), ENDING: (runs.SUCCEEDED, "")},
    ),
    "storm": (
        Site.storm,
        {**dict.fromkeys(ALL, (runs.SUCCEEDED, "")), SAVING: (runs.STOPPED, "ada@example.com")},
    ),
    "full disk": (
        Site.fill_disk,
        {RUNNING: (runs.FAILED, "disk full")},
    ),
}
GOES_ON = ("kill of the script", "kill of the supervisor")
"""Faults after which what stands still has to go on: a script that saves, a bucket that does not answer."""
DOWN = ("preemption", "reboot")
"""Faults that take the host down, with what of the log was not shipped."""
DIAGONAL = {
    ("kill of the script", RUNNING, 4), ("kill of the supervisor", BARRIER, 4),
    ("kill of the supervisor", ENDING, 1), ("preemption", INSTALLING, 1), ("reboot", SAVING, 1),
    ("storm", INSTALLING, 4),
}  # fmt: skip
CELLS = [
    pytest.param(
        fault, phase, hosts,
        marks=() if (fault, phase, hosts) in DIAGONAL else pytest.mark.slow,
        id=f"{fault}-{phase}-{hosts}",
    )
    for fault, (_, endings) in FAULTS.items()
    for phase in endings
    for hosts in (1, 4)
    if (phase, hosts) != (BARRIER, 1)
]  # fmt: skip


@pytest.mark.parametrize(("fault", "phase", "hosts"), CELLS)
def test_a_run_ends_rightly_and_leaves_nothing(
    tpuctl: Callable[..., CommandResult], cloud: Cloud, simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch, fault: str, phase: str, hosts: int,
) -> None:  # fmt: skip
    site = Site(tpuctl, cloud, simulator, hosts)
    act, endings = FAULTS[fault]
    site.start(phase)
    act(site)
    if fault in GOES_ON and phase in (SAVING, ENDING):
        site.go_on()
    try:
        verdict, seconds = site.verdict(monkeypatch)
        outcome, words = endings[phase]
        assert verdict.outcome == outcome, f"{verdict.evidence}\n{site.supervisor_logs()}"
        assert words in verdict.evidence
        site.until(site.is_clean, "the end of everything that was started")
        check_logs(site, phase, is_complete=fault not in DOWN)
    finally:
        site.release()
    print(f"{fault}, {phase}, {hosts} hosts: {verdict.outcome} after {seconds:.1f} s")


def check_logs(site: Site, phase: str, *, is_complete: bool) -> None:
    """Check that no line is doubled or missing before another, and none at the end where all is said."""
    if is_complete:
        site.until(site.have_all_finished, "the last words")
    for worker in range(site.hosts):
        lines = site.log(worker).splitlines(True)
        own = b"".join(line for line in lines if line.startswith(b"step"))
        assert LINES.startswith(own)
        if is_complete and phase in (RUNNING, SAVING, ENDING):
            assert own == LINES
