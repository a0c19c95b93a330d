"""A watcher killed at each of its requests, what its next step would send, and a run that is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.crashes.faults import ZONE as CRASH_ZONE
from tests.crashes.faults import nothing
from tests.crashes.world import CrashWorld, Interference, Killed, Worlds
from tests.flows.passing_time import PassingTime
from tests.flows.runs.records import CREATED
from tests.flows.runs.recovery.site import ZONE, Site
from tpuctl import clock, runs
from tpuctl.cloud.storage import DryRunBucket
from tpuctl.errors import ConfigError, DeadlineError
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery import step
from tpuctl.flows.runs.recovery.drill import requests
from tpuctl.flows.runs.recovery.lease import ENDED_FOR_GOOD
from tpuctl.flows.runs.recovery.step import is_made_for
from tpuctl.recovery import Lease
from tpuctl.runs import BY_SILENCE, Verdict, encode

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


@pytest.fixture
def site(home: Path, tmp_path: Path) -> Iterator[Site]:
    """A run on a spot node."""
    with CrashWorld(tmp_path) as world:
        site = Site(world)
        client = storage.Client("p", AnonymousCredentials())  # type: ignore[no-untyped-call]
        site.bucket.dry_run = lambda: DryRunBucket(client, "b")  # type: ignore[attr-defined]
        yield site
        client.close()


def shown(site: Site) -> list[tuple[str, str]]:
    """Return each request's method and the end of its address; checks that nothing was changed."""
    written, billing = len(site.bucket.history), list(site.world.billing)
    result = [(request.method, request.url) for request in requests(site.run, site.tools())]
    assert (len(site.bucket.history), site.world.billing) == (written, billing)
    return result


def end(site: Site, **changes: object) -> None:
    now = clock.iso(site.world.time)
    tpu = site.run.last_attempt().record.tpu
    fields = {"tpu": tpu, "restarts": True, "started": now, "ended": now, **changes}
    site.run.end(Verdict("r1", runs.LOST, 1, now, "because", **fields))  # type: ignore[arg-type]


def test_a_run_that_goes_on_needs_nothing(site: Site) -> None:
    assert shown(site) == []


def test_a_run_that_was_preempted_gets_another_machine(site: Site) -> None:
    site.preempt()
    settle(site.run, site.tools().witnesses)
    sent = shown(site)
    assert [method for method, _ in sent] == ["POST", "POST", "DELETE", "POST", "SSH"]
    assert sent[2][1].endswith("/nodes/n1")
    assert "nodeId=r1-2" in sent[3][1]
    assert sent[4][1] == "r1-2"


def test_a_machine_that_is_ready_is_used_again(site: Site) -> None:
    end(site)
    assert shown(site)[2:] == [("SSH", "n1")]
    (*_, last) = requests(site.run, site.tools())
    assert last.body == "start job.py as attempt 2"


def test_a_machine_that_is_ready_and_silent_is_replaced(site: Site) -> None:
    site.label_for_run()
    end(site, basis=BY_SILENCE)
    assert [method for method, _ in shown(site)[2:]] == ["DELETE", "POST", "SSH"]


@pytest.mark.parametrize("why", ["ended", "asked to stop"])
def test_a_run_that_is_not_started_again_needs_nothing(site: Site, why: str) -> None:
    end(site, restarts=why != "ended")
    if why == "asked to stop":
        site.ask_to_stop()
    assert shown(site) == []


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
