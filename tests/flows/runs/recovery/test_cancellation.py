"""The end of a run that was asked to stop while it was, or was to be, started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.crashes.faults import ZONE as CRASH_ZONE
from tests.crashes.world import CrashWorld
from tests.flows.passing_time import PassingTime
from tests.flows.runs.records import CREATED
from tests.flows.runs.recovery.site import Site
from tpuctl import runs
from tpuctl.errors import DeadlineError
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery import step
from tpuctl.flows.runs.recovery.step import is_made_for
from tpuctl.recovery import Lease
from tpuctl.runs import Verdict, encode


@pytest.fixture
def cancelled_site(home: Path, tmp_path: Path) -> Iterator[Site]:
    """A run on a spot node that was preempted, and that was asked to stop since."""
    with CrashWorld(tmp_path) as world:
        site = Site(world)
        site.preempt()
        site.ask_to_stop()
        yield site


def hold(cancelled_site: Site) -> None:
    """Let another watcher begin the second attempt, and die before a host has heard of it."""
    cancelled_site.run.keep_verdict(Verdict("r1", runs.PREEMPTED, 1, CREATED, "because", restarts=True))
    cancelled_site.run.create_attempt(
        msgspec.structs.replace(cancelled_site.run.last_attempt().record, attempt=2)
    )
    lease = Lease("r1", 2, "token", "bob@desk", leases.SECONDS)
    cancelled_site.bucket.create(cancelled_site.run.paths.lease(2), encode(lease))


def test_it_has_ended_and_nothing_bills(cancelled_site: Site) -> None:
    verdict = step.end(cancelled_site.run, cancelled_site.tools())
    assert verdict
    assert (verdict.outcome, verdict.stopped_by) == (runs.STOPPED, "ada@example.com")
    assert len(cancelled_site.reports) == 1


def test_a_watcher_that_died_is_waited_for_and_said_once(cancelled_site: Site) -> None:
    hold(cancelled_site)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        cancelled_site.world.pass_time(seconds)

    verdict = step.end(cancelled_site.run, cancelled_site.tools(), sleep)
    assert verdict
    assert verdict.outcome == runs.STOPPED
    assert leases.SECONDS <= sum(pauses) <= leases.SECONDS + 10.0
    assert max(pauses) <= 5.0
    assert "bob@desk starts it" in cancelled_site.reports[0]
    assert len(cancelled_site.reports) == len(set(cancelled_site.reports))


def test_a_watcher_that_does_not_let_go_is_an_error(cancelled_site: Site, passing_time: PassingTime) -> None:
    hold(cancelled_site)
    with pytest.raises(DeadlineError) as late:
        step.end(cancelled_site.run, cancelled_site.tools(), passing_time.sleep)
    assert late.value.message == (
        "Run 'r1' was asked to stop, but a watcher still starts it: Waited 180 s for the end of its restart."
    )
    assert late.value.hint == "Ask again: tpuctl cancel r1\nWhat bills: tpuctl ls"
    assert len(cancelled_site.reports) == 1


def test_a_zone_that_does_not_answer_is_no_watcher(cancelled_site: Site) -> None:
    lease = Lease("r1", 2, "token", "bob@desk", leases.SECONDS, is_over=True)
    cancelled_site.bucket.create(cancelled_site.run.paths.lease(2), encode(lease))
    assert settle(cancelled_site.run, cancelled_site.tools().witnesses).verdict
    cancelled_site.world.faults.add("unreachable", zone=CRASH_ZONE)
    with pytest.raises(DeadlineError) as late:
        step.end(cancelled_site.run, cancelled_site.tools())
    assert late.value.message == (
        "Run 'r1' was asked to stop, but what was made for it may bill: No answer from"
        f" {CRASH_ZONE}: TPUs there may continue to bill."
    )
    assert late.value.hint == "Ask again: tpuctl cancel r1\nWhat bills: tpuctl ls"
    assert late.value.facts == {"unreachable": [CRASH_ZONE]}


def test_a_provider_that_cannot_say_whether_it_goes_on_is_no_watcher(cancelled_site: Site) -> None:
    cancelled_site.world.faults.add("unreachable", zone=CRASH_ZONE)
    with pytest.raises(DeadlineError) as late:
        step.end(cancelled_site.run, cancelled_site.tools())
    assert late.value.message == (
        "Run 'r1' was asked to stop, but attempt 1 goes on (unknown): Waited 180 s for the end of its"
        " restart."
    )


@pytest.mark.parametrize(
    ("run", "node", "attempts", "is_made"),
    [
        ("r1", "r1-2", 2, True), ("r1", "r1-3", 3, True), ("r1", "r1-2", 3, True), ("7up", "r7up-2", 2, True),
        ("r1", "r1-2", 1, False), ("r1", "r1-3", 2, False), ("r1", "r1-1", 3, False), ("r1", "n1", 3, False),
        ("r1", "r2-2", 3, False),
    ],
)  # fmt: skip
def test_a_node_was_made_for_a_restart_by_its_name(run: str, node: str, attempts: int, is_made: bool) -> None:
    assert is_made_for(run, node, attempts) is is_made
