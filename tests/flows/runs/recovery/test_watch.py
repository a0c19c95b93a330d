"""How often a watcher looks: each run every ten seconds, of many runs those that go on every thirty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes.world import CrashWorld
from tests.flows.runs.recovery.site import Site
from tpuctl import clock
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.events import RESTARTED, Event
from tpuctl.flows.runs.recovery.watch import Watcher
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.worker.records import RUNNING, WorkerStatus, encode

LOOKS = 7
"""Of a minute, its first and last moment included."""


class Enough(Exception):
    """A minute is over."""


@pytest.fixture
def world(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrashWorld]:
    """A world of its own, without a node, where two runs are many."""
    monkeypatch.setattr(watch, "WIDTH", 1)  # also one thread, so that requests come in one order
    with CrashWorld(tmp_path) as built:
        yield built


def listings(site: Site, names: list[str]) -> int:
    """Watch all runs for a minute in which their workers write; return how often the bucket was listed."""
    began = site.world.time

    def beat() -> None:
        for name in names:
            status = WorkerStatus(0, 1, "7", RUNNING, clock.iso(site.world.time))
            paths = StoredRun(site.bucket, name).paths  # type: ignore[arg-type]
            site.bucket.put(paths.status(1, 0), encode(status))

    def sleep(seconds: float) -> None:
        if (site.world.time - began).total_seconds() >= 60:
            raise Enough
        site.world.pass_time(seconds)
        beat()

    shown: list[Event] = []
    beat()
    site.world.requests = []
    with pytest.raises(Enough):
        Watcher(site.tools(), shown.append, sleep).watch_all(site.owner)
    assert shown == []
    return site.world.requests.count("bucket.list")


@pytest.mark.parametrize(("count", "looks"), [(1, LOOKS), (2, 3), (5, 3)])
def test_of_more_than_a_few_runs_each_that_goes_on_is_looked_at_every_thirty_seconds(
    world: CrashWorld, count: int, looks: int
) -> None:
    site = Site(world)
    names = ["r1", *(f"other-{number}" for number in range(count - 1))]
    for name in names[1:]:
        site.neighbour(name, "n1")
    for_runs, for_attempts, for_statuses = LOOKS, count, looks * count
    assert listings(site, names) == for_runs + for_attempts + for_statuses


def test_runs_among_many_that_are_preempted_are_started_again(world: CrashWorld) -> None:
    site = Site(world)
    site.neighbour("other", "n1")
    site.preempt()
    restarted: list[str] = []

    def show(event: Event) -> None:
        if event.action == RESTARTED:
            restarted.append(event.run)

    def sleep(seconds: float) -> None:
        if len(restarted) == 2:
            raise Enough
        site.world.pass_time(seconds)

    with pytest.raises(Enough):
        Watcher(site.tools(), show, sleep).watch_all(site.owner)
    assert sorted(restarted) == ["other", "r1"]
