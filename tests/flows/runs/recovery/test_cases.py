"""What a step does in each case: two watchers at once, a cancellation, no capacity, a bad host."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import msgspec
import pytest

from tests.crashes.faults import ZONE, nothing
from tests.crashes.world import CrashWorld, Interference, Killed, Worlds
from tests.flows.runs.recovery.site import Site
from tests.flows.runs.recovery.test_step import check, requests_of_step
from tpuctl import clock, runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.prices import Price
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import HostError, NotFoundError, UsageError
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.lease import BUSY, ENDED_FOR_GOOD, GOES_ON, RESTARTED, WAITS, WatchEvent
from tpuctl.flows.runs.recovery.machine import machine_name
from tpuctl.flows.runs.submission import launch_values
from tpuctl.recovery import Lease, Restarts
from tpuctl.runs import BY_MACHINE, Verdict, encode

DAILY = slice(2, None, 6)
"""The requests that are tried in `make test`."""
CREATED_BEFORE_LAUNCH = 3
"""Objects before the record: the lease, the verdict of the attempt before, the note in the node's folder."""


def at_each_request(worlds: Worlds, check_at: Callable[[CrashWorld, int], None], chosen: slice) -> None:
    """Check what happens at each chosen request of a step, each in a world of its own."""
    with worlds.new() as world:
        methods = [*enumerate(requests_of_step(world, "one host"))]
    for number, method in methods[chosen]:
        with worlds.new(f"at request {number}, {method}") as world:
            check_at(world, number)


@pytest.mark.parametrize("chosen", [DAILY, pytest.param(slice(None), marks=pytest.mark.slow)])
def test_of_two_watchers_at_once_one_makes_the_restart(worlds: Worlds, chosen: slice) -> None:
    at_each_request(worlds, two_watchers, chosen)


@pytest.mark.parametrize("chosen", [DAILY, pytest.param(slice(None), marks=pytest.mark.slow)])
def test_a_request_to_stop_wins_at_any_moment_and_leaves_nothing_that_bills(
    worlds: Worlds, chosen: slice
) -> None:
    at_each_request(worlds, stop_request, chosen)


def two_watchers(world: CrashWorld, number: int) -> None:
    """Have another watcher take a step at a request: one of the two makes the restart."""
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


def test_a_watcher_that_was_suspended_makes_no_machine_for_what_another_has_finished(
    world: CrashWorld,
) -> None:
    site = Site(world)
    site.preempt()
    billing = list[str]()

    def suspend(method: str, at: int, moment: str) -> None:
        if method == "ListAcceleratorTypes":  # it has the lease, and plans the machine
            world.interfere = nothing
            kept, world.requests = world.requests, []
            world.pass_time(leases.SECONDS + 1)
            assert site.steps("b").action == RESTARTED
            assert site.finish().action == ENDED_FOR_GOOD
            billing.append(str(world.billing))
            world.requests = kept

    world.interfere = suspend
    assert site.step("a") == WatchEvent("r1", 2, BUSY, "another watcher has taken over")
    assert billing == ["[]"], "it was suspended"
    assert world.billing == []
    assert "CreateNode" not in world.requests


def stop_request(world: CrashWorld, number: int) -> None:
    """Ask the run to stop at a request: it wins, and nothing that bills is left."""
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
    site.label_for_run()
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


class TestEvents:
    def test_of_a_run_that_goes_on_have_its_state(self, world: CrashWorld) -> None:
        assert Site(world).step() == WatchEvent("r1", 1, GOES_ON, "running")

    @pytest.mark.parametrize("policy", [{"restarts": Restarts()}, {"machine": None}])
    def test_of_a_run_without_restarts_change_nothing(
        self, world: CrashWorld, policy: dict[str, object]
    ) -> None:
        site = Site(world)
        record = msgspec.structs.replace(site.run.record, **policy)
        site.bucket.put(site.run.paths.record, encode(record))
        written = len(site.bucket.history)
        site.preempt()
        assert site.step() == WatchEvent("r1", 1, GOES_ON, "it has no restarts")
        assert len(site.bucket.history) == written
        verdict = Verdict("r1", runs.PREEMPTED, 1, clock.iso(world.time), "because", basis=BY_MACHINE)
        site.bucket.put(site.run.paths.verdict, encode(verdict))
        assert site.step() == WatchEvent("r1", 1, ENDED_FOR_GOOD, runs.PREEMPTED)

    def test_of_an_end_at_the_first_attempt_look_for_no_machine(self, world: CrashWorld) -> None:
        site = Site(world)
        assert site.finish() == WatchEvent("r1", 1, ENDED_FOR_GOOD, runs.SUCCEEDED)
        assert "ListNodes" not in world.requests
        lease = Lease("r1", 2, "token", "bob@desk", leases.SECONDS)
        site.bucket.put(site.run.paths.lease(2), encode(lease))
        site.step()
        assert "ListNodes" in world.requests, "who held it may have made one"

    def test_of_a_restart_say_where_it_is(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()
        assert site.step() == WatchEvent("r1", 2, RESTARTED, f"on r1-2 in {ZONE}")

    def test_of_a_run_that_another_watcher_starts_name_that_one(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()
        lease = Lease("r1", 2, "token", "bob@desk", leases.SECONDS)
        site.bucket.put(site.run.paths.lease(2), encode(lease))
        assert site.step() == WatchEvent("r1", 2, BUSY, "bob@desk starts it")

    def test_of_a_run_without_quota_say_what_the_service_says(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()
        world.faults.add("quota", zone=ZONE)
        event = site.step()
        assert event
        assert event.action == WAITS
        assert event.detail.startswith(f"Node 'r1-2' (v3-8) in {ZONE}: Quota limit ")

    def test_of_a_run_with_the_last_number_of_an_attempt_make_no_machine(self, world: CrashWorld) -> None:
        """Whoever can create objects can have begun with it; nobody could read the record of another one."""
        site = Site(world)
        attempt = msgspec.structs.replace(site.run.attempt(1).record, attempt=9999)
        site.bucket.put(site.run.paths.attempt(9999), encode(attempt))
        verdict = Verdict(
            "r1", runs.PREEMPTED, 9999, clock.iso(world.time), "x", basis=runs.BY_WORKERS, restarts=True
        )
        site.bucket.put(site.run.paths.verdict, encode(verdict))
        with pytest.raises(UsageError, match="has attempt 9999, which is the last that a run can have"):
            site.step()
        assert "CreateNode" not in world.requests

    def test_of_a_run_whose_verdict_is_none_are_its_error(self, world: CrashWorld) -> None:
        site = Site(world)
        site.bucket.put(site.run.paths.verdict, b"{")
        with pytest.raises(BadObjectError, match=r"verdict\.json"):
            site.step()


class TestStopRequest:
    def test_of_a_run_that_was_to_be_started_again_ends_it(self, world: CrashWorld) -> None:
        site = Site(world)
        site.lose()
        site.ask_to_stop()
        assert site.step() == WatchEvent("r1", 1, ENDED_FOR_GOOD, runs.STOPPED)
        verdict = site.run.verdict()
        assert verdict
        assert verdict.evidence == (
            "stopped by ada@example.com while it was to be started again"
            " (lost: its host has no program of it)"
        )
        assert (verdict.stopped_by, verdict.restarts, verdict.basis) == ("ada@example.com", False, BY_MACHINE)
        assert (verdict.decided, verdict.cause) == (clock.iso(world.time), runs.LOST)

    def test_keeps_what_the_run_was_started_on(self, world: CrashWorld) -> None:
        """Its first machine is the user's: it was not made for a restart."""
        site = Site(world)
        site.lose()
        site.ask_to_stop()
        site.step()
        assert len(world.billing) == 1


class TestLaunch:
    def test_without_the_code_makes_no_machine_and_says_so(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()
        site.bucket.remove(site.bucket.objects("bundles/")[0])
        before = world.billing
        with pytest.raises(NotFoundError, match="The code of run 'r1' is not in the bucket any more") as gone:
            site.step()
        assert "tpuctl cancel r1" in gone.value.hint
        assert world.billing == before

    def test_without_the_dataset_makes_no_machine_and_says_so(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()
        dataset = PinnedDataset("pts", "1.0.0", "0" * 64)
        record = msgspec.structs.replace(site.run.record, dataset=dataset, data_bucket=site.bucket.name)
        site.bucket.put(site.run.paths.record, encode(record))
        launch_values.confirm(site.bucket.name, record, site.run.attempt(1).record.tpu)
        before = world.billing
        with pytest.raises(NotFoundError, match="The dataset of run 'r1' was deleted"):
            site.step()
        assert world.billing == before

    def test_whose_code_goes_at_the_last_moment_waits_and_says_so(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()

        def remove(method: str, number: int, when: str) -> None:
            if method == "CreateNode" and (code := site.bucket.objects("bundles/")):
                site.bucket.remove(code[0])

        world.interfere = remove
        event = site.step()
        evidence = "it could not be started: The code of run 'r1' is not in the bucket any more."
        assert event == WatchEvent("r1", 2, WAITS, evidence)
        verdict = site.run.verdict()
        assert verdict
        assert (verdict.attempt, verdict.outcome, verdict.basis) == (2, runs.LOST, BY_MACHINE)
        assert (verdict.evidence, verdict.restarts) == (evidence, True)
        assert verdict.started == verdict.ended == verdict.decided == clock.iso(world.time)
        assert verdict.tpu == site.run.last_attempt().record.tpu

    def test_keeps_how_the_attempt_before_ended(self, world: CrashWorld) -> None:
        site = Site(world)
        site.lose()
        site.step()
        (verdict,) = site.run.earlier_verdicts(2)
        assert (verdict.attempt, verdict.outcome) == (1, runs.LOST)

    def test_forgets_the_values_of_a_run_that_has_ended(self, world: CrashWorld) -> None:
        site = Site(world, options=("--metadata", "api-password=correct-horse-7"))
        assert launch_values.kept(site.bucket.name, site.run.record)
        site.finish()
        assert launch_values.kept(site.bucket.name, site.run.record) is None


class TestInterruptedStart:
    """Another watcher was killed after it had written the second attempt, on four hosts."""

    def interrupted(self, world: CrashWorld, started: int) -> Site:
        """Return a site where so many hosts were started, and the lease of who did that is late."""
        site = Site(world, "v3-32")
        site.preempt()

        def kill(method: str, at: int, moment: str) -> None:
            if len([own for own in site.hosts.started if own[2] == 2]) == started and is_launch(method):
                world.interfere = nothing
                raise Killed

        def is_launch(method: str) -> bool:
            return world.requests.count("bucket.create") > CREATED_BEFORE_LAUNCH and method.startswith("ssh")

        world.interfere = kill
        assert site.step("bob") is None
        assert site.step() == WatchEvent("r1", 2, BUSY, "bob starts it")
        world.pass_time(leases.SECONDS + 1)
        return site

    def test_before_the_first_host_is_begun_again(self, world: CrashWorld) -> None:
        site = self.interrupted(world, 0)
        assert site.step() == WatchEvent("r1", 2, RESTARTED, f"on r1-2 in {ZONE}")
        assert [own[1:] for own in site.hosts.started if own[2] == 2] == [(n, 2) for n in range(4)]

    def test_after_the_last_host_is_none(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()

        def kill(method: str, at: int, moment: str) -> None:
            if site.run.bucket.get(site.run.paths.status(2, 0)):  # type: ignore[attr-defined]  # in memory
                world.interfere = nothing
                raise Killed

        world.interfere = kill
        assert site.step("bob") is None
        world.pass_time(leases.SECONDS + 1)
        assert site.step() == WatchEvent("r1", 2, GOES_ON, "every worker had started")
        lease = leases.read(site.run, 2)
        assert lease
        assert (lease.holder, lease.is_over) == ("a", True)

    def test_on_some_hosts_ends_what_waits_there(self, world: CrashWorld) -> None:
        site = self.interrupted(world, 2)
        uid = site.run.last_attempt().record.tpu.uid
        evidence = "its start was interrupted on some hosts"
        assert site.step() == WatchEvent("r1", 2, WAITS, evidence)
        assert site.hosts.ended == [(uid, 0, 2), (uid, 1, 2)]
        verdict = site.run.verdict()
        assert verdict
        assert (verdict.outcome, verdict.evidence, verdict.restarts) == (runs.LOST, evidence, True)

    def test_on_a_node_that_has_ended_since_is_a_loss_of_its_node(self, world: CrashWorld) -> None:
        site = self.interrupted(world, 2)
        site.preempt()
        assert site.step() == WatchEvent("r1", 2, WAITS, "the node is PREEMPTED")
        verdict = site.run.verdict()
        assert verdict
        assert (verdict.outcome, verdict.restarts) == (runs.PREEMPTED, True)

    def test_of_a_run_that_is_to_stop_ends_with_its_machine(self, world: CrashWorld) -> None:
        site = self.interrupted(world, 2)
        site.ask_to_stop()
        assert site.step() == WatchEvent("r1", 2, ENDED_FOR_GOOD, runs.STOPPED)
        assert world.billing == []
        verdict = site.run.verdict()
        assert verdict
        assert (verdict.attempt, verdict.evidence) == (
            2, "stopped by ada@example.com while it was to be started again",
        )  # fmt: skip

    def test_on_hosts_that_do_not_answer_is_waited_for_as_long_as_a_start_may_take(
        self, world: CrashWorld
    ) -> None:
        site = self.interrupted(world, 0)
        written = world.time

        def refuse(method: str, at: int, moment: str) -> None:
            if method == "ssh":
                raise HostError("No route to host.")

        while (event := self.step(site, refuse)).action == WAITS and "worker 0" in event.detail:
            assert event.detail == "worker 0: No route to host"
            lease = leases.read(site.run, 2)
            assert lease
            assert not lease.is_over, "another watcher may go on"
            world.pass_time(20)
        assert event == WatchEvent("r1", 2, WAITS, "its start was interrupted on some hosts")
        assert 300 - leases.SECONDS <= (world.time - written).total_seconds() <= 320

    def step(self, site: Site, interfere: Interference) -> WatchEvent:
        site.world.interfere = interfere
        event = site.step()
        assert event
        return event
