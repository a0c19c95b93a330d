"""The machine of a restart is the one before: what its creator chose is compared in the API's resources."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from google.cloud import tpu_v2

from tests.crashes.faults import ZONE
from tests.crashes.world import CrashWorld
from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.nodes.memory_provider import node as memory_node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.recovery.site import Site
from tpuctl import accelerators, clock, runs
from tpuctl.bucket_layout import RunPaths
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.cloud.tpu.messages import read_node
from tpuctl.config.subnetworks import subnetwork_in
from tpuctl.errors import ConfigError, DeadlineError, StateError, StockoutError, UsageError
from tpuctl.flows.nodes.lifetime import users_script
from tpuctl.flows.nodes.placement.creation import zone_of
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.recovery.lease import ENDED_FOR_GOOD, RESTARTED
from tpuctl.flows.runs.recovery.machine import delete_all, machine_name, options_of, plan_machine
from tpuctl.flows.runs.recovery.watch import Watcher
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values
from tpuctl.flows.runs.submission.restart_policy import RestartRequest, machine_like
from tpuctl.host.keeper.records import BUCKET
from tpuctl.masking import secrets_in
from tpuctl.nodes import RESTART_LABEL, Node, UpdateNode, owner_label
from tpuctl.runs import NOT_STORED, Verdict, encode
from tpuctl.sim.world import Reservation

SCRIPT = "#!/bin/sh\necho 'ready' >/tmp/ready\n"
CHOSEN = (
    "--label", "team=vision", "--metadata", "color=blue", "--tag", "trainer", "--scopes", "cloud-platform",
    "--scopes", "storage-rw", "--service-account", "own@p.iam.gserviceaccount.com", "--network", "lab",
    "--subnetwork", "lab-eu", "--internal-ips", "--no-iap", "--data-disk", "photos:ro", "--secure-boot",
    "--runtime", "tpu-vm-tf-2.16.1-pjrt",
)  # fmt: skip
"""Every option of `up` about the resource, each with another value than its default."""
RESERVATION = Reservation(f"projects/sim-project/locations/{ZONE}/reservations/r", "v3-8", 8)


def restarted(site: Site) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Preempt a run's node and start the run again; return both nodes as the API shows them."""
    (before,) = site.world.world.nodes.all()
    site.preempt()
    assert site.steps().action == RESTARTED
    (after,) = site.world.world.nodes.all()
    assert after.uid != before.uid
    return before.spec, {**after.spec, "is queued": bool(after.queued_resource)}


@cache
def both(accelerator: str, *options: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return both nodes of a run whose first one was created with these options."""
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HOME=folder, TPUCTL_STATE=f"{folder}/state", TPUCTL_TARGET="sim")
        script = Path(folder, "script.sh")
        script.write_text(SCRIPT)
        try:
            with CrashWorld(Path(folder)) as world:
                world.world.capacity.reservations.add(RESERVATION)
                options = (*options, "--startup-script", str(script))
                return restarted(Site(world, accelerator, options=options))
        finally:
            os.environ.clear()
            os.environ.update(environment)


def without_own(marks: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in marks.items() if not key.startswith("tpuctl-")}


@pytest.mark.parametrize(
    "field",
    [
        "acceleratorType", "acceleratorConfig", "runtimeVersion", "networkConfig", "schedulingConfig",
        "serviceAccount", "tags", "dataDisks", "shieldedInstanceConfig",
    ],
)  # fmt: skip
def test_a_field_of_the_lost_node_is_that_of_the_next(field: str) -> None:
    before, after = both("v3-8", *CHOSEN)
    assert before[field]
    assert after[field] == before[field]


def test_the_labels_of_the_lost_node_are_on_the_next_beside_those_of_tpuctl() -> None:
    before, after = (without_own(spec["labels"]) for spec in both("v3-8", *CHOSEN))
    assert after == before == {"managed-by": "tpuctl", "team": "vision"}


def test_the_metadata_of_the_lost_node_is_on_the_next() -> None:
    before, after = both("v3-8", *CHOSEN)
    assert (before["metadata"]["color"], after["metadata"]["color"]) == ("blue", "blue")
    assert after["metadata"]["ssh-keys"] == before["metadata"]["ssh-keys"]


def test_the_startup_script_of_the_lost_node_runs_on_the_next_beside_its_keeper() -> None:
    before, after = both("v3-8", *CHOSEN)
    assert users_script(before["metadata"]["startup-script"]) == SCRIPT
    assert users_script(after["metadata"]["startup-script"]) == SCRIPT
    assert "starts the keeper" in after["metadata"]["startup-script"]


def test_a_startup_script_that_began_with_a_keeper_is_given_once() -> None:
    before, after = both("v3-8", "--idle", "2h", "--ttl", "9h")
    assert after["metadata"]["startup-script"] == before["metadata"]["startup-script"]
    assert after["metadata"]["tpuctl-ttl"] == before["metadata"]["tpuctl-ttl"]
    assert users_script(after["metadata"]["startup-script"]) == SCRIPT


def test_a_topology_that_its_creator_chose_is_that_of_the_next(world: CrashWorld) -> None:
    """The simulator has the default topology of each type only."""
    config = tpu_v2.AcceleratorConfig(type_="V4", topology="2x2x8")
    name = f"projects/p/locations/{ZONE}/nodes/n1"
    node = read_node(tpu_v2.Node(name=name, accelerator_type="v4-64", accelerator_config=config))
    assert machine_like(node, RestartRequest(), "jax", "ada").topology == "2x2x8"
    config.topology = "2x4x4"
    node = read_node(tpu_v2.Node(name=name, accelerator_type="v4-64", accelerator_config=config))
    assert machine_like(node, RestartRequest(), "jax", "ada").topology == ""


SUBNETWORKS = {"europe-west4": "lab-eu", "us-central1": "lab-us", "asia-east1": "lab-asia"}


def node_with(subnetwork: str, zone: str = ZONE) -> Node:
    message = tpu_v2.Node(name=f"projects/p/locations/{zone}/nodes/n1", accelerator_type="v3-8")
    message.network_config.subnetwork = subnetwork
    return read_node(message)


def test_a_restart_in_another_region_has_the_subnetwork_of_that_region() -> None:
    request = RestartRequest(zones=("us-central1-a",), subnetworks=SUBNETWORKS)
    machine = machine_like(node_with("own-eu"), request, "jax", "ada")
    assert (machine.zones, machine.subnetwork) == ((ZONE, "us-central1-a"), "own-eu")
    assert machine.subnetworks == {"europe-west4": "own-eu", "us-central1": "lab-us"}
    options = options_of(machine, "r", "r-2", "b")
    assert [subnetwork_in(zone, options.subnetwork, options.subnetworks) for zone in machine.zones] == [
        "own-eu", "lab-us",
    ]  # fmt: skip
    alone = machine_like(node_with("own-eu"), RestartRequest(subnetworks=SUBNETWORKS), "jax", "ada")
    assert (alone.subnetwork, alone.subnetworks) == ("own-eu", {})


def test_zones_without_a_subnetwork_are_no_zones_of_a_restart() -> None:
    known = {"europe-west4": "lab-eu"}
    anywhere = machine_like(
        node_with("lab-eu"), RestartRequest(zones=("any",), subnetworks=known), "jax", "ada"
    )
    assert {accelerators.region(zone) for zone in anywhere.zones} == {"europe-west4"}
    with pytest.raises(ConfigError, match="no subnetwork in us-central1, the region of us-central1-a"):
        machine_like(
            node_with("lab-eu"), RestartRequest(zones=("us-central1-a",), subnetworks=known), "jax", "ada"
        )


@pytest.mark.parametrize("queued", [(), ("--queued",)])
def test_a_node_of_reserved_capacity_is_followed_by_one(queued: tuple[str, ...]) -> None:
    before, after = both("v3-8", "--reserved", *queued)
    assert before["schedulingConfig"]["reserved"]
    assert after["schedulingConfig"] == before["schedulingConfig"]


def test_a_node_of_the_queue_is_followed_by_one_with_the_same_fields() -> None:
    before, after = both("v3-8", *CHOSEN, "--queued")
    assert after["is queued"]
    for field in ("serviceAccount", "tags", "dataDisks", "networkConfig", "schedulingConfig"):
        assert after[field] == before[field]


def test_a_secret_in_metadata_is_not_in_the_record_of_the_run(world: CrashWorld) -> None:
    site = Site(world, options=("--metadata", "api-password=correct-horse-7"))
    assert "correct-horse-7" not in encode(site.run.record).decode()
    assert site.run.record.machine
    assert site.run.record.machine.metadata == {"api-password": NOT_STORED}


def test_a_secret_in_metadata_is_on_the_next_node_where_the_run_was_submitted(world: CrashWorld) -> None:
    site = Site(world, options=("--metadata", "api-password=correct-horse-7"))
    before, after = restarted(site)
    assert after["metadata"]["api-password"] == before["metadata"]["api-password"] == "correct-horse-7"


def test_a_secret_in_metadata_that_nobody_here_knows_is_named_before_anything_bills(
    world: CrashWorld, home: Path
) -> None:
    site = Site(world, options=("--metadata", "api-password=correct-horse-7"))
    launch_values.confirm(site.bucket.name, site.run.record, site.run.attempt(1).record.tpu)
    site.preempt()
    with pytest.raises(UsageError, match="'--metadata api-password'"):
        site.step()
    assert [name for name in world.billing if "r1-2" in name] == []


def test_a_startup_script_with_a_secret_is_kept_on_this_machine_only(world: CrashWorld, home: Path) -> None:
    script = home / "secret.sh"
    script.write_text("#!/bin/sh\nexport API_PASSWORD='correct-horse-7'\n")
    assert secrets_in(script.read_text(), is_code=True)
    site = Site(world, options=("--startup-script", str(script)))
    assert "correct-horse-7" not in encode(site.run.record).decode()
    _, after = restarted(site)
    assert users_script(after["metadata"]["startup-script"]) == script.read_text()


def test_a_run_with_a_disk_is_restarted_in_the_zone_of_the_disk_only(world: CrashWorld) -> None:
    site = Site(world, options=("--data-disk", "photos"))
    (node,) = world.provider.list_nodes().nodes
    with pytest.raises(UsageError, match="disk 'photos'"):
        machine_like(node, RestartRequest(zones=("us-central1-a",)), "jax", site.owner)
    assert machine_like(node, RestartRequest(zones=(node.zone,)), "jax", site.owner).zones == (node.zone,)


def test_a_slice_whose_neighbour_is_used_is_not_deleted_for_its_bad_host(world: CrashWorld) -> None:
    site = Site(world, options=("--slices", "2"))
    site.label_for_run()
    site.neighbour("r2", "n1-1")
    site.lose()
    assert site.steps().action == RESTARTED
    site.lose()
    with pytest.raises(StateError, match="'n1-1' cannot be replaced: run 'r2' uses it, too"):
        site.step()
    assert {node.name.rpartition("/")[2] for node in world.world.nodes.all()} == {"n1-0", "n1-1"}


class TestEnd:
    """Of a machine that is made for a restart: its watcher may be gone when the run ends."""

    def test_is_after_an_hour_without_use_where_the_user_wants_none(self, world: CrashWorld) -> None:
        _, after = restarted(Site(world))
        assert (after["metadata"]["tpuctl-idle"], "tpuctl-ttl" in after["metadata"]) == ("3600s", False)

    def test_is_the_users_own_where_there_is_one(self) -> None:
        def options(**ends: int) -> tuple[int, int]:
            recipe = msgspec.structs.replace(
                machine_like(node_with("s"), RestartRequest(), "jax", "ada"), **ends
            )
            lifetime = options_of(recipe, "r", "r-2", "b").lifetime
            return lifetime.ttl, lifetime.idle

        assert options(ttl=7200) == (7200, 0)
        assert options(idle=600) == (0, 600)
        assert options(ttl=7200, idle=600) == (7200, 600)
        assert options() == (0, 3600)


@pytest.mark.parametrize(("queued", "patience"), [(True, 600.0), (False, 0.0)])
def test_a_step_waits_ten_minutes_in_a_queue_and_not_without_one(
    world: CrashWorld, queued: bool, patience: float
) -> None:
    site = Site(world, queued=queued)
    machine = site.run.record.machine
    assert machine
    plan = plan_machine(site.tools(), "r1", machine, 2)
    assert (plan.search.wait, plan.search.zones, plan.search.named) == (patience, (ZONE,), (ZONE,))
    assert (plan.options.name, plan.options.restart, plan.options.bucket) == ("r1-2", "r1", site.bucket.name)


def test_a_long_name_is_cut_and_has_a_digest() -> None:
    digest = hashlib.sha256(b"a" * 62).hexdigest()[:8]
    assert machine_name("a" * 61, 2) == "a" * 61 + "-2"
    assert machine_name("a" * 62, 2) == "a" * 52 + f"-{digest}-2"
    dashed = "a" * 50 + "-" * 2 + "b" * 11
    assert machine_name(dashed, 10).startswith(
        "a" * 50 + "-" + hashlib.sha256(dashed.encode()).hexdigest()[:8]
    )
    assert machine_name(dashed, 10).endswith("-10")


def test_a_machine_that_another_run_uses_meanwhile_is_left_to_it(world: CrashWorld) -> None:
    site = Site(world)
    site.neighbour("r2", "n1")
    site.lose()
    assert site.steps().action == RESTARTED
    assert "n1 is busy with run 'r2': another machine is made" in site.reports
    assert {node.name.rpartition("/")[2] for node in world.world.nodes.all()} == {"n1", "r1-2"}


def test_a_machine_of_the_name_that_is_not_of_the_run_is_not_used(world: CrashWorld) -> None:
    site = Site(world)
    site.preempt()
    options = ("--zone", ZONE, "--framework", "jax", "--spot", "--idle", "1h", "--yes")
    made = world.tpuctl("up", "v3-8", "--name", "r1-2", *options)
    assert made.code == 0, made.err
    with pytest.raises(StateError) as error:
        site.step()
    assert error.value.message == (
        f"'r1-2' in {ZONE} has the name of the machine of run 'r1', and is another."
    )
    assert error.value.hint == "Delete it if nobody uses it: tpuctl down r1-2"
    assert "r1-2" in {node.name.rpartition("/")[2] for node in world.world.nodes.all()}


def test_a_slice_that_another_run_uses_says_how_to_free_it(world: CrashWorld) -> None:
    site = Site(world, options=("--slices", "2"))
    site.label_for_run()
    site.neighbour("r2", "n1-1")
    site.lose()
    site.steps()
    site.lose()
    with pytest.raises(StateError) as error:
        site.step()
    assert error.value.hint == "Wait for it: tpuctl wait r2\nStop it: tpuctl cancel r2"


def test_prices_of_all_zones_are_named_where_none_is_low_enough(world: CrashWorld) -> None:
    site = Site(world, max_price="1.50")
    machine = site.run.record.machine
    assert machine
    recipe = msgspec.structs.replace(machine, zones=(ZONE, "us-central1-a"))
    prices = {ZONE: Price(Decimal("1.51"), "USD"), "us-central1-a": unknown("nobody asked")}
    tools = replace(site.tools(), price_of=lambda creation: prices[zone_of(creation)])
    with pytest.raises(StockoutError) as error:
        plan_machine(tools, "r1", recipe, 2)
    assert error.value.message == (
        f"No zone has a v3-8 for 1.50 per hour: {prices[ZONE].short} in {ZONE},"
        f" {prices['us-central1-a'].short} in us-central1-a."
    )
    assert error.value.facts["zones"] == [ZONE, "us-central1-a"]
    prices["us-central1-a"] = Price(Decimal("1.50"), "USD")
    plan = plan_machine(tools, "r1", recipe, 2)
    assert [zone_of(creation) for creation in plan.creations] == ["us-central1-a"]


def test_each_look_of_a_watcher_is_another_request_in_the_queue(world: CrashWorld) -> None:
    site = Site(world, queued=True)
    site.preempt()
    before = len(world.world.events.find(kind="request", what="CreateQueuedResource"))
    world.faults.add(
        "failed-operation", method="CreateQueuedResource", count=3, code="RESOURCE_EXHAUSTED",
        message="There is no more capacity in the zone.",
    )  # fmt: skip
    assert site.steps().action == RESTARTED
    sent = world.world.events.find(kind="request", what="CreateQueuedResource")[before:]
    assert len(sent) == 4
    assert len({(event.body or {})["requestId"] for event in sent}) == 4
    assert {name.rpartition("/")[2] for name in world.billing} == {"r1-2"}, "what failed is gone"
    assert len(world.billing) == 2, "the node, and its queued resource"


def names(world: CrashWorld) -> list[str]:
    return [node.name.rpartition("/")[2] for node in world.world.nodes.all()]


def test_a_machine_that_another_run_uses_by_now_is_deleted_after_the_end_of_that_alone(
    world: CrashWorld,
) -> None:
    site = Site(world)
    site.preempt()
    assert site.steps().action == RESTARTED
    site.neighbour("r2", "r1-2")
    assert site.finish().action == ENDED_FOR_GOOD
    assert names(world) == ["r1-2"]
    assert site.reports[-1] == "r1-2 stays: run 'r2' uses it. Afterwards: tpuctl down r1-2"
    other = StoredRun(site.bucket, "r2")  # type: ignore[arg-type]
    other.end(Verdict("r2", runs.SUCCEEDED, 1, clock.iso(world.time), "because"))
    Watcher(site.tools()).sweep(site.owner)
    assert names(world) == []


def test_a_machine_on_whose_hosts_a_run_of_another_bucket_works_stays(world: CrashWorld) -> None:
    site = Site(world)
    site.preempt()
    assert site.steps().action == RESTARTED
    site.hosts.others = "r1 2\nr9 1\n"
    assert site.finish().action == ENDED_FOR_GOOD
    assert names(world) == ["r1-2"]
    assert site.reports[-1] == "r1-2 stays: run 'r9' uses it. Afterwards: tpuctl down r1-2"
    site.hosts.others = "r1 2\n"
    Watcher(site.tools()).sweep(site.owner)
    assert names(world) == []


def test_a_machine_stays_while_nobody_can_tell_whether_another_run_uses_it(world: CrashWorld) -> None:
    site = Site(world)
    site.preempt()
    assert site.steps().action == RESTARTED
    site.neighbour("r2", "r1-2")
    site.bucket.put(RunPaths("r2").attempt(1), b"damaged")
    assert site.finish().action == ENDED_FOR_GOOD
    assert names(world) == ["r1-2"]
    watcher, before = Watcher(site.tools()), len(site.reports)
    watcher.sweep(site.owner)
    watcher.sweep(site.owner)
    assert site.reports[before:] == ["r1-2 stays: run 'r2' uses it. Afterwards: tpuctl down r1-2"]


def test_a_machine_that_has_lost_its_labels_stays_which_is_said(world: CrashWorld) -> None:
    site = Site(world)
    site.preempt()
    assert site.steps().action == RESTARTED
    (made,) = world.provider.list_nodes(ZONE).nodes
    world.provider.begin(UpdateNode(made, labels={})).wait("to lose its labels", 60)
    assert site.finish().action == ENDED_FOR_GOOD
    assert names(world) == ["r1-2"]
    words = "r1-2 was not made for this run: it stays, and bills. End it: tpuctl down r1-2"
    assert site.reports[-1] == words


class TestDeletion:
    def delete(self, *nodes: Node, besides: str = "", unreachable: tuple[str, ...] = ()) -> list[str]:
        """Delete what was made for r1, and return the names of what is left."""
        provider = MemoryProvider(*nodes)
        provider.unreachable = unreachable
        tools: Any = SimpleNamespace(
            provider=provider, bucket=MemoryBucket(), report=lambda text: None, witnesses=Witnesses(provider)
        )
        recipe = machine_like(node_with("s", "us-central1-b"), RestartRequest(), "jax", "ada")
        try:
            delete_all(tools, "r1", recipe, besides=besides)
        finally:
            self.left = sorted(provider.nodes)
        return self.left

    def made(self, name: str, run: str = "r1", owner: str = "ada") -> Node:
        labels = {**memory_node().labels, "tpuctl-owner": owner_label(owner), RESTART_LABEL: run}
        return memory_node(name, id=replace(memory_node().id, name=name, uid=name), labels=labels)

    def test_is_of_every_machine_that_was_made_for_the_run(self) -> None:
        own = [self.made("r1-2"), self.made("r1-3")]
        assert self.delete(*own, memory_node("n1")) == ["n1"]
        assert self.delete(*own, besides="r1-3") == ["r1-3"]

    def test_is_of_no_other(self) -> None:
        assert self.delete(self.made("r2-2", run="r2")) == ["r2-2"]
        assert self.delete(self.made("r1-2", owner="bob")) == ["r1-2"]
        assert self.delete(replace(self.made("r1-2"), metadata={BUCKET: "other"})) == ["r1-2"]
        assert self.delete(replace(self.made("r1-2"), metadata={BUCKET: MemoryBucket.name})) == []

    def test_is_not_certain_where_a_zone_of_the_run_is_silent(self) -> None:
        with pytest.raises(DeadlineError, match="No answer from us-central1-b"):
            self.delete(self.made("r1-2"), unreachable=("us-central1-b",))
        assert self.left == []
        assert self.delete(self.made("r1-2"), unreachable=("asia-east1-c",)) == []
        assert self.delete(self.made("r1-2"), besides="x", unreachable=("us-central1-b",)) == []
