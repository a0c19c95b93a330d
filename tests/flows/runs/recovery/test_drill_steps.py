"""The steps of a drill, in a world where waiting takes no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes.world import CrashWorld
from tests.flows.runs.recovery.site import Site
from tpuctl.catalogue.prices import unknown
from tpuctl.flows.runs.recovery.drill import PREEMPTION, RunDrillReport, drill, plan
from tpuctl.worker.records import FINISHED


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[CrashWorld]:
    """A world of its own, without a node."""
    with CrashWorld(tmp_path) as built:
        yield built


def drilled(site: Site, late: int) -> RunDrillReport:
    """Drill the run, whose node goes after so many looks, and whose second attempt ends without a step."""
    tools, pauses = site.tools(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == late:
            site.preempt()
        site.world.pass_time(seconds)
        if 2 in site.run.attempt_numbers():
            site.hosts.write(2, 0, FINISHED, exit_code=0)

    planned = plan(site.run, tools, PREEMPTION, site.owner)
    return drill(planned, tools, lambda: None, lambda _: unknown("nobody asked"), sleep)


@pytest.mark.parametrize("late", [1, 3])
def test_what_a_drill_waits_for_is_said_once_however_often_it_looks(world: CrashWorld, late: int) -> None:
    site = Site(world)
    told = drilled(site, late)
    assert (told.outcome, told.attempt, told.next_step) == ("preempted", 2, "")
    assert site.reports == [
        "preemption of n1", "r1: attempt 1 goes on: running", "deleted n1",
        "creating r1-2 (v3-8) in europe-west4-a", "waiting for SSH on 1 host",
        "r1: attempt 2 restarted: on r1-2 in europe-west4-a", "attempt 1 preempted: the node is PREEMPTED",
    ]  # fmt: skip
