"""A watcher killed at each of its requests: the next one ends with one attempt, one machine, one start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crashes.faults import nothing
from tests.crashes.world import CrashWorld, Interference, Killed, Worlds
from tests.flows.runs.recovery.site import ZONE, Site
from tpuctl import runs
from tpuctl.errors import ConfigError
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.lease import ENDED_FOR_GOOD

SHAPES = {"one host": ("v3-8", False), "queued": ("v3-8", True), "four hosts": ("v3-32", False)}
"""Accelerator, and whether a queued resource makes it."""


def preempted(world: CrashWorld, shape: str) -> Site:
    accelerator, queued = SHAPES[shape]
    site = Site(world, accelerator, queued=queued)
    site.preempt()
    return site


def requests_of_step(world: CrashWorld, shape: str) -> tuple[str, ...]:
    """Return the methods of the requests of a step that nothing interrupts."""
    preempted(world, shape).step()
    return tuple(world.requests)


CHANGES = ("bucket.create", "bucket.replace", "Create", "Delete", "ssh.run")


def is_daily(shape: str, method: str, when: str) -> bool:
    """Return whether `make test` kills a watcher there: after it has changed something."""
    if when == "before":
        return False
    return method.startswith(CHANGES) if shape == "one host" else (shape, method) == ("four hosts", "ssh.run")


def check(site: Site) -> None:
    """One machine bills, one attempt runs on its hosts, each started once; nothing is left at its end."""
    world, attempt = site.world, site.run.last_attempt()
    ready = [node for node in world.world.nodes.all() if node.state == "READY"]
    assert [str(node.uid) for node in ready] == [attempt.record.tpu.uid]
    assert len(world.billing) == len(world.world.nodes.all()) + len(world.world.queued_resources.all())
    assert len(world.world.nodes.all()) == 1, world.billing
    assert len(world.world.queued_resources.all()) <= 1, world.billing
    runs_now = [own for own in site.hosts.started if own[2] == attempt.number]
    uid = attempt.record.tpu.uid
    assert sorted(runs_now) == [(uid, worker, attempt.number) for worker in attempt.record.workers]
    lease = leases.read(site.run, attempt.number)
    assert lease
    assert lease.is_over
    event = site.finish()
    assert (event.action, event.detail) == (ENDED_FOR_GOOD, runs.SUCCEEDED)
    assert world.billing == []


def kill_at_each_request(worlds: Worlds, shape: str, choose: Callable[[str, str, str], bool]) -> None:
    """Kill the watcher at each chosen request, each in a world of its own, and let another one continue."""
    with worlds.new() as world:
        methods = requests_of_step(world, shape)
    moments = [(n, method, when) for n, method in enumerate(methods) for when in ("before", "after")]
    chosen = [moment for moment in moments if choose(shape, *moment[1:])]
    assert chosen
    for number, method, when in chosen:
        with worlds.new(f"killed {when} request {number}, {method}") as world:
            site = preempted(world, shape)
            world.interfere = killed_at(world, number, when)
            site.step("a")  # of a request that is refused there is no `after`
            site.steps("b")
            check(site)
            if shape != "four hosts":
                assert site.run.attempt_numbers() == [1, 2]


def test_every_error_with_a_machine_says_that_it_bills_and_both_commands(worlds: Worlds) -> None:
    with worlds.new() as world:
        methods = requests_of_step(world, "one host")
        made = next(node for node in world.world.nodes.all() if node.state == "READY").name.rpartition("/")[2]
    first = max(number for number, method in enumerate(methods) if method == "ssh.run") - 1
    refused = list[str]()
    for number in range(methods.index("CreateNode") + 1, first):
        with worlds.new(f"refused at request {number}, {methods[number]}") as world:
            site = preempted(world, "one host")
            world.interfere = refused_at(number)
            error = error_of(site)
        if error:
            refused.append(methods[number])
            assert f"Node '{made}' in {ZONE} bills." in error.message, (methods[number], error.message)
            assert f"Resume: tpuctl watch r1\nDelete it: tpuctl down {made}" in error.hint
    assert {"GetNode", "bucket.create"} <= set(refused)


def error_of(site: Site) -> ConfigError | None:
    """Return the error of a step; None for one that goes on without what it was refused."""
    try:
        site.step()
    except ConfigError as error:
        return error
    return None


def refused_at(number: int) -> Interference:
    def refuse(method: str, at: int, moment: str) -> None:
        if (at, moment) == (number, "before"):
            raise ConfigError("No right.")

    return refuse


def killed_at(world: CrashWorld, number: int, when: str) -> Interference:
    def kill(method: str, at: int, moment: str) -> None:
        if (at, moment) == (number, when):
            world.interfere = nothing
            raise Killed

    return kill


@pytest.mark.parametrize("shape", ["one host", "four hosts"])
def test_a_watcher_killed_after_a_change_is_continued_by_the_next(worlds: Worlds, shape: str) -> None:
    kill_at_each_request(worlds, shape, is_daily)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_watcher_killed_at_any_request_is_continued_by_the_next(worlds: Worlds, shape: str) -> None:
    kill_at_each_request(worlds, shape, lambda *moment: True)
