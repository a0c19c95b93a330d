"""What a step does in each case: two watchers at once, a cancellation, no capacity, a bad host."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.crashes.faults import ZONE, nothing
from tests.crashes.world import CrashWorld
from tests.flows.runs.recovery.site import Site
from tests.flows.runs.recovery.test_step import check, requests
from tpuctl import runs
from tpuctl.catalogue.prices import Price
from tpuctl.flows.runs.recovery.events import BUSY, ENDED_FOR_GOOD, GOES_ON, RESTARTED, WAITS
from tpuctl.flows.runs.recovery.machine import machine_name

QUICK = 6
"""One request in so many is tried in `make test`."""


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[CrashWorld]:
    """A world of its own, without a node."""
    with CrashWorld(tmp_path) as built:
        yield built


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        cells = [
            pytest.param(
                number, marks=() if number % QUICK == 2 else pytest.mark.slow, id=f"{number}-{method}"
            )
            for number, method in enumerate(requests("one host"))
        ]
        metafunc.parametrize("number", cells)


def test_of_two_watchers_at_once_one_makes_the_restart(world: CrashWorld, number: int) -> None:
    site = Site(world)
    site.preempt()
    actions = []

    def meanwhile(method: str, at: int, moment: str) -> None:
        if (at, moment) == (number, "before"):
            world.interfere = nothing
            kept, event = world.requests, site.step("b")
            world.requests = kept
            assert event
            actions.append(event.action)

    world.interfere = meanwhile
    event = site.step("a")
    assert event
    actions.append(event.action)
    assert actions.count(RESTARTED) == 1, actions
    assert set(actions) <= {RESTARTED, BUSY, GOES_ON}
    check(site)
    assert site.run.attempt_numbers() == [1, 2]


def test_a_request_to_stop_wins_at_any_moment_and_leaves_nothing_that_bills(
    world: CrashWorld, number: int
) -> None:
    site = Site(world)
    site.preempt()

    def stop(method: str, at: int, moment: str) -> None:
        if (at, moment) == (number, "before"):
            world.interfere = nothing
            site.ask_to_stop()

    world.interfere = stop
    site.step("a")
    if site.run.last_attempt().number == 2 and not site.run.verdict():
        site.hosts.write(2, 0, "finished", exit_code=143, signal="SIGTERM", stopped_by="ada@example.com")
    event = site.steps("b")
    assert (event.action, event.detail) == (ENDED_FOR_GOOD, runs.STOPPED)
    verdict = site.run.verdict()
    assert verdict
    assert verdict.stopped_by == "ada@example.com"
    assert [name for name in world.billing if "r1-2" in name] == []


def test_without_capacity_it_waits_and_nothing_bills(world: CrashWorld) -> None:
    site = Site(world)
    site.preempt()
    world.faults.add("stockout", zone=ZONE)
    event = site.step()
    assert event
    assert event.action == WAITS
    assert world.billing == []
    world.faults.clear()
    assert site.steps().action == RESTARTED
    check(site)


@pytest.mark.parametrize("amount", [None, Decimal(20)])
def test_a_machine_that_costs_too_much_is_not_made(world: CrashWorld, amount: Decimal | None) -> None:
    site = Site(world, max_price="12.50")
    site.preempt()
    site.price = Price(amount, "USD")
    event = site.step()
    assert event
    assert event.action == WAITS
    assert event.detail.startswith("No zone has a v3-8 for 12.50 per hour: ")
    assert world.billing == []
    site.price = Price(Decimal("12.50"), "USD")
    assert site.steps().action == RESTARTED


def test_a_machine_that_is_ready_again_is_used_again(world: CrashWorld) -> None:
    site = Site(world)
    uid = site.run.last_attempt().record.tpu.uid
    site.lose()
    assert site.steps().action == RESTARTED
    assert site.run.last_attempt().record.tpu.uid == uid
    assert len(world.billing) == 1


def test_a_host_that_loses_the_same_worker_twice_at_once_is_replaced_and_not_for_ever(
    world: CrashWorld,
) -> None:
    site = Site(world)
    uid = site.run.last_attempt().record.tpu.uid
    site.lose()
    assert site.steps().action == RESTARTED
    site.lose()
    assert site.steps().action == RESTARTED
    record = site.run.last_attempt().record
    assert (record.tpu.name, record.tpu.uid == uid) == ("r1-3", False)
    assert "n1 is replaced" in site.reports
    site.lose()
    verdict = site.run.verdict()
    assert verdict
    assert verdict.evidence.endswith("not restarted: 3 attempts in a row were lost within 120 s")
    assert site.steps().action == ENDED_FOR_GOOD
    assert world.billing == []


@pytest.mark.parametrize(
    ("run", "name"), [("digits", "digits-2"), ("20260131", "r20260131-2"), ("a" * 63, None)]
)
def test_a_machine_has_the_name_of_its_run_and_attempt(run: str, name: str | None) -> None:
    assert machine_name(run, 2) == (name or machine_name(run, 2))
    assert len(machine_name(run, 2)) <= 63
    assert machine_name(run, 2) != machine_name(f"{run[:-1]}b", 2)
