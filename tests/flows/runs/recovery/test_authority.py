"""What a watcher does for records that somebody else may have written: only what somebody here has chosen."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.crashes.world import CrashWorld
from tests.flows.runs.recovery.site import ZONE, Site, WorldBucket
from tpuctl import clock, runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.prices import Price
from tpuctl.errors import ConfigError, StockoutError
from tpuctl.flows.runs.outcome import with_restart
from tpuctl.flows.runs.recovery.authority import Limits, is_allowed, machine_of, own_node
from tpuctl.flows.runs.recovery.lease import ENDED_FOR_GOOD, RESTARTED, WAITS
from tpuctl.flows.runs.recovery.step import step
from tpuctl.flows.runs.recovery.watch import Watcher
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values
from tpuctl.host.worker.records import FINISHED
from tpuctl.nodes import DataDisk
from tpuctl.runs import BY_SILENCE, LOST, Run, Tpu, Verdict, encode

LIMITS = Limits(("v3-8",), (ZONE,), "tpu@p.iam.gserviceaccount.com")


def nodes(site: Site) -> dict[str, str]:
    """Name -> state of every node."""
    return {node.name.rpartition("/")[2]: str(node.state) for node in site.world.world.nodes.all()}


def rewritten(site: Site, **changes: Any) -> Run:
    """Replace the run's record in the bucket, as a member of the team may."""
    record = msgspec.structs.replace(site.run.record, **changes)
    site.bucket.put(site.run.paths.record, encode(record))
    return record


def test_a_run_of_which_nothing_is_known_here_is_not_started_again(world: CrashWorld) -> None:
    site = Site(world)
    site.forget_values()
    site.preempt()
    with pytest.raises(ConfigError, match="Run 'r1' was not submitted from here") as error:
        site.step()
    assert "allow it: tpuctl watch r1" in error.value.hint
    assert nodes(site) == {"n1": "PREEMPTED"}
    launch_values.confirm(site.bucket.name, site.run.record, site.run.last_attempt().record.tpu)
    assert site.steps().action == RESTARTED


def test_a_record_that_was_replaced_starts_nothing(world: CrashWorld) -> None:
    site = Site(world)
    machine = site.run.record.machine
    assert machine
    forged = msgspec.structs.replace(machine, accelerator="v3-512", startup_script="#!/bin/sh\necho attacker")
    honest = site.run.record
    site.preempt()
    for changes, name in (({"machine": forged}, "machine"), ({"bundle_sha256": "1" * 64}, "bundle_sha256")):
        rewritten(site, **changes)
        with pytest.raises(ConfigError, match=f"since it was submitted here: {name}"):
            site.step()
        assert nodes(site) == {"n1": "PREEMPTED"}
        site.bucket.put(site.run.paths.record, encode(honest))


@pytest.mark.parametrize("basis", [BY_SILENCE, runs.BY_MACHINE])
@pytest.mark.parametrize("project", ["sim-project", "prod-project"])
def test_a_node_that_was_not_made_for_the_run_is_neither_used_nor_deleted(
    world: CrashWorld, project: str, basis: str
) -> None:
    """A job has written the next attempt, on another node of the same owner, and how it ended."""
    site = Site(world)
    up = world.tpuctl("up", "v3-8", "--name", "mine", "--zone", ZONE, "--framework", "jax", "--yes")
    assert up.code == 0, up.err
    site.preempt("n1")
    mine = Tpu.of(next(node for node in world.provider.list_nodes(ZONE).nodes if node.name == "mine"))
    forged = msgspec.structs.replace(mine, project=project)
    now = clock.iso(world.time)
    record = msgspec.structs.replace(site.run.attempt(1).record, attempt=2, tpu=forged)
    site.bucket.put(site.run.paths.attempt(2), encode(record))
    verdict = Verdict("r1", LOST, 2, now, "silent", basis=basis, ended=now, tpu=forged, started=now)
    site.bucket.put(site.run.paths.verdict, encode(with_restart(site.run, verdict)))
    assert site.steps().action == RESTARTED
    assert nodes(site)["mine"] == "READY"
    assert not [own for own in site.hosts.started if own[0] == mine.uid], "nothing runs there"
    assert site.run.last_attempt().record.tpu.name == "r1-3"


def test_a_run_of_another_bucket_is_none_of_a_watcher(world: CrashWorld) -> None:
    """Each bucket has a run r1, and the machine that was made for the other one has its name, too."""
    site = Site(world)
    site.preempt()
    assert site.steps().action == RESTARTED
    assert nodes(site)["r1-2"] == "READY"
    other = WorldBucket(world)
    other.name = "other-bucket"
    twin = StoredRun(other, "r1")  # type: ignore[arg-type]
    twin.create(site.run.record)
    twin.end(Verdict("r1", runs.SUCCEEDED, 1, clock.iso(world.time), "all ended"))
    tools = replace(site.tools(), bucket=other)  # type: ignore[arg-type]
    Watcher(tools).sweep(site.owner)
    assert nodes(site)["r1-2"] == "READY"
    assert own_node(tools.provider, tools.bucket, twin.record, site.run.last_attempt().record.tpu) is None


def test_a_node_that_was_not_made_for_the_run_stays_and_is_named(world: CrashWorld) -> None:
    site = Site(world)
    now = clock.iso(world.time)
    tpu = site.run.attempt(1).record.tpu
    lost = Verdict("r1", LOST, 1, now, "silent", basis=BY_SILENCE, ended=now, tpu=tpu, started=now)
    site.run.end(with_restart(site.run, lost))
    assert site.steps().action == RESTARTED
    assert nodes(site) == {"n1": "READY", "r1-2": "READY"}
    assert "n1 was not made for this run: it stays, and bills. End it: tpuctl down n1" in site.reports


class TestLimits:
    """A watcher that has submitted nothing itself, such as a scheduled one."""

    def test_what_is_within_them_is_made_as_it_is_configured_here(self, world: CrashWorld) -> None:
        site = Site(world)
        site.forget_values()
        site.preempt()
        run = StoredRun(site.bucket, "r1")  # type: ignore[arg-type]
        event = step(run, replace(site.tools(), limits=LIMITS))
        assert event.action == RESTARTED, event
        made = next(node for node in world.world.nodes.all() if node.name.endswith("r1-2"))
        assert made.spec["serviceAccount"]["email"] == "tpu@p.iam.gserviceaccount.com"

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"accelerator": "v3-512"}, "a v3-512, and watch_types are v3-8"),
            ({"zones": ("us-east1-d",)}, f"a TPU in us-east1-d, and watch_zones are {ZONE}"),
            ({"startup_script": "#!/bin/sh", "tags": ("open",)}, "its own tags and startup script"),
            ({"metadata": {"x": "1"}}, "its own metadata"),
            ({"data_disks": (DataDisk("photos"),)}, "its own data disks"),
            ({"topology": "2x2x4"}, "its own topology"),
            ({"reserved": True}, "its own reserved"),
        ],
    )
    def test_what_a_record_asks_for_beyond_them_is_refused(
        self, world: CrashWorld, changes: dict[str, Any], named: str
    ) -> None:
        site = Site(world)
        site.forget_values()
        machine = site.run.record.machine
        assert machine
        record = rewritten(site, machine=msgspec.structs.replace(machine, **changes))
        assert not is_allowed(site.bucket.name, record, LIMITS)
        with pytest.raises(ConfigError, match=f"asks for {named}"):
            machine_of(site.bucket.name, record, LIMITS)

    def test_a_record_chooses_no_account_and_no_network(self, world: CrashWorld) -> None:
        site = Site(world)
        site.forget_values()
        machine = site.run.record.machine
        assert machine
        chosen = msgspec.structs.replace(
            machine, service_account="", network="other", subnetwork="other", zones=("us-east1-d", ZONE),
            scopes=("cloud-platform",),
        )  # fmt: skip
        made = machine_of(site.bucket.name, rewritten(site, machine=chosen), LIMITS)
        assert (made.service_account, made.network, made.subnetwork) == (
            LIMITS.service_account,
            "default",
            "",
        )
        assert (made.zones, made.scopes) == ((ZONE,), ())

    def test_all_machines_together_cost_no_more_than_the_limit(self, world: CrashWorld) -> None:
        limits = replace(LIMITS, max_price=Decimal(20))
        with limits.spending("a-2", Decimal(8), {}), limits.spending("b-2", Decimal(8), {}):
            for others in ({}, {"a-2": Decimal(8)}):
                with pytest.raises(StockoutError, match="the other machines of restarts cost 16"):
                    enter(limits, "c-2", others)
            enter(limits, "a-2", {"a-2": Decimal(8)})
        with pytest.raises(StockoutError, match="cost 16"):
            enter(limits, "c-2", {"a-2": Decimal(8), "b-2": Decimal(8)})
        enter(limits, "c-2", {"a-2": Decimal(8)})

    def test_a_run_beyond_the_limit_of_cost_waits(self, world: CrashWorld) -> None:
        site = Site(world)
        site.forget_values()
        site.preempt()
        run = StoredRun(site.bucket, "r1")  # type: ignore[arg-type]
        eight = Price(Decimal(8), "USD")
        for most, action in ((7, WAITS), (8, RESTARTED)):
            limits = replace(LIMITS, max_price=Decimal(most))
            tools = replace(site.tools(), limits=limits, price_of=lambda _: eight, node_price=lambda _: eight)
            assert step(run, tools).action == action


class TestForgeries:
    """What each job can do to the run of another by the objects that it may write: SECURITY.md says it."""

    def test_a_forged_word_of_a_worker_ends_the_run_and_its_machine(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()
        assert site.steps().action == RESTARTED
        assert nodes(site)["r1-2"] == "READY"
        site.hosts.write(2, 0, FINISHED, exit_code=0)
        assert site.steps().action == ENDED_FOR_GOOD
        assert "r1-2" not in nodes(site)

    def test_a_forged_attempt_starts_the_run_again_as_it_was_submitted(self, world: CrashWorld) -> None:
        site = Site(world)
        forged = msgspec.structs.replace(site.run.attempt(1).record, attempt=2)
        site.bucket.put(site.run.paths.attempt(2), encode(forged))
        world.pass_time(1000)
        assert site.steps().action == RESTARTED
        fields = ("acceleratorType", "schedulingConfig", "serviceAccount", "networkConfig")
        own, made = ({field: node.spec.get(field) for field in fields} for node in world.world.nodes.all())
        assert own == made
        assert list(nodes(site)) == ["n1", "r1-3"]

    def test_a_forged_attempt_that_is_none_keeps_a_run_from_its_restart(self, world: CrashWorld) -> None:
        site = Site(world)
        site.preempt()
        site.bucket.put(site.run.paths.attempt(999), b"{}")
        with pytest.raises(BadObjectError, match=r"runs/r1/attempts/999/attempt\.json is not"):
            site.steps()


def enter(limits: Limits, name: str, others: dict[str, Decimal]) -> None:
    with limits.spending(name, Decimal(8), others):
        pass
