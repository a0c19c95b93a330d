"""A watcher killed at each of its requests: the next one ends with one attempt, one machine, one start."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.crashes.faults import nothing
from tests.crashes.world import CrashWorld, Killed
from tests.flows.runs.recovery.site import Site
from tests.ordering.shared import shared
from tpuctl import runs
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.events import ENDED_FOR_GOOD

SHAPES = {"one host": ("v3-8", False), "queued": ("v3-8", True), "four hosts": ("v3-32", False)}
"""Accelerator, and whether a queued resource makes it."""


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[CrashWorld]:
    """A world of its own, without a node."""
    with CrashWorld(tmp_path) as built:
        yield built


def preempted(world: CrashWorld, shape: str) -> Site:
    accelerator, queued = SHAPES[shape]
    site = Site(world, accelerator, queued=queued)
    site.preempt()
    return site


@cache
def requests(shape: str) -> tuple[str, ...]:
    """Return the methods of the requests of a step that nothing interrupts."""
    return tuple(shared(f"recovery, {shape}", lambda: _requests(shape)))


def _requests(shape: str) -> tuple[str, ...]:
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HOME=folder, TPUCTL_STATE=f"{folder}/state", TPUCTL_TARGET="sim")
        try:
            with CrashWorld(Path(folder)) as world:
                preempted(world, shape).step()
                return tuple(world.requests)
        finally:
            os.environ.clear()
            os.environ.update(environment)


CHANGES = ("bucket.create", "bucket.replace", "Create", "Delete", "ssh.run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        cells = []
        for shape in SHAPES:
            for number, method in enumerate(requests(shape)):
                for when in ("before", "after"):
                    is_quick = when == "after" and method.startswith(CHANGES) and shape == "one host"
                    is_quick = is_quick or (method == "ssh.run" and shape == "four hosts" and when == "after")
                    marks = () if is_quick else pytest.mark.slow
                    name = f"{shape}-{number}-{method}-{when}"
                    cells.append(pytest.param(shape, number, when, marks=marks, id=name))
        metafunc.parametrize(("shape", "number", "when"), cells)


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


def test_a_watcher_killed_at_any_request_is_continued_by_the_next(
    world: CrashWorld, shape: str, number: int, when: str
) -> None:
    site = preempted(world, shape)

    def kill(method: str, at: int, moment: str) -> None:
        if (at, moment) == (number, when):
            world.interfere = nothing
            raise Killed

    world.interfere = kill
    site.step("a")  # of a request that is refused there is no `after`
    site.steps("b")
    check(site)
    if shape != "four hosts":
        assert site.run.attempt_numbers() == [1, 2]
