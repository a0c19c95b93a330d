"""`submit` that is killed at awkward moments: no run without an end, and no host that waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.flows.runs.matrix.client import ALL, HALF, NO_ATTEMPT, NO_HOST, NO_RECORD, befall
from tests.flows.runs.matrix.phases import RUNNING
from tests.flows.runs.matrix.site import Site
from tpuctl import runs
from tpuctl.flows.runs.submission import submit as turn

KILLED = -9
NEVER = "it was never started on worker {}: its host has no trace of it"
OUTCOMES = [
    # moment, hosts, the run's outcome, words of the evidence
    pytest.param(NO_HOST, 1, runs.FAILED, NEVER.format(0), marks=pytest.mark.slow),
    pytest.param(NO_HOST, 4, runs.FAILED, NEVER.format(0), marks=pytest.mark.slow),
    pytest.param(HALF, 4, runs.FAILED, NEVER.format(2), marks=pytest.mark.slow),
    pytest.param(ALL, 1, runs.SUCCEEDED, "", marks=pytest.mark.slow),
    pytest.param(ALL, 4, runs.SUCCEEDED, "", marks=pytest.mark.slow),
]


def submit(site: Site, moment: str) -> None:
    """Submit the run in a process that is killed."""
    site.shorten()
    site.make_tpu()
    code, output = site.run_client(moment, "submit", "job.py", "--name", "r1", "--", RUNNING)
    assert code == KILLED, output


@pytest.mark.parametrize(("moment", "hosts", "outcome", "words"), OUTCOMES)
def test_a_run_whose_submit_was_killed_has_an_end(
    make_site: Callable[[int], Site], moment: str, hosts: int, outcome: str, words: str
) -> None:
    """Hosts that wait for those which nobody starts any more give them up after a minute."""
    site = make_site(hosts)
    submit(site, moment)
    if moment == ALL:
        site.until(lambda: site.is_in(RUNNING), RUNNING)
        site.go_on()
    verdict = site.verdict()
    assert (verdict.outcome, words in verdict.evidence) == (outcome, True), verdict.evidence
    site.until(site.is_clean, "the end of everything that was started")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "hosts"),
    [
        (moment, hosts)
        for moment in (NO_RECORD, NO_ATTEMPT, NO_HOST, HALF, ALL)
        for hosts in (1, 4)
        if (moment, hosts) != (HALF, 1)
    ],
)
def test_a_preemption_at_any_moment_of_submit_is_one_and_the_run_is_started_again(
    make_site: Callable[[int], Site], monkeypatch: pytest.MonkeyPatch, moment: str, hosts: int
) -> None:
    """It was told as a failure, and never started again."""
    site, lock, preempted = make_site(hosts), threading.Lock(), list[bool]()
    site.ask_early()
    site.make_tpu()

    def preempt() -> None:
        with lock:
            if not preempted:
                site.preempt()
                preempted.append(True)

    with monkeypatch.context() as patch:
        befall(moment, preempt, patch.setattr)
        submitted = site.tpuctl("submit", "job.py", "--name", "r1", "--", "ending")
    assert submitted.code == (0 if moment == ALL else 7), submitted.err
    verdict = site.verdict()
    assert (verdict.outcome, verdict.restarts) == (runs.PREEMPTED, True), verdict.evidence
    watched = site.tpuctl("watch", "r1", "--once")
    assert watched.code == 0, watched.err
    assert site.tpuctl("wait", "r1").code == 0
    assert site.run.attempt_numbers() == [1, 2]
    site.until(site.is_clean, "the end of everything that was started")


@pytest.mark.parametrize(
    ("moment", "states"), [pytest.param(NO_RECORD, [], marks=pytest.mark.slow), (NO_ATTEMPT, ["not started"])]
)
def test_a_run_of_which_nothing_was_started_runs_nowhere(
    make_site: Callable[[int], Site], monkeypatch: pytest.MonkeyPatch, moment: str, states: list[str]
) -> None:
    """It keeps its place for a minute: it might be on its way."""
    monkeypatch.setattr(turn, "UNDER_WAY", -1.0)
    site = make_site(1)
    submit(site, moment)
    listed = site.tpuctl("runs", "--json").json["runs"]
    assert [run["state"] for run in listed] == states
    assert not site.folders
    started = site.tpuctl("submit", "job.py", "--name", "r2", "--", "ending")
    assert started.code == 0, started.err
    assert site.tpuctl("wait", "r2").code == 0
