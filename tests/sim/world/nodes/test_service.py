"""The calls on nodes: what each checks, how it refuses, and what it begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sim.tpu.queue.timed_world import NODE, PARENT, TWO, pass_time, settle
from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tests.sim.world.played import play
from tpuctl.sim.records import GuestAttribute
from tpuctl.sim.world import ApiError, Code, World
from tpuctl.sim.world.capacity.capacity import Reservation
from tpuctl.sim.world.resources import Node, Operation, RequestContext

FIELDS: dict[str, Any] = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
BAD = "Cloud TPU received a bad request. "
CALLS: dict[str, Callable[[World, str], object]] = {
    "delete": lambda world, name: world.nodes.delete(name),
    "update": lambda world, name: world.nodes.update(name, {"description": "d"}, ["description"]),
    "stop": lambda world, name: world.nodes.stop(name),
    "start": lambda world, name: world.nodes.start(name),
    "simulate maintenance event": lambda world, name: world.nodes.simulate_maintenance(name, []),
    "perform maintenance": lambda world, name: world.nodes.perform_maintenance(name),
    "get guest attributes": lambda world, name: world.nodes.guest_attributes(name, [], ""),
}


async def ready(world: World, time: ManualTime, node_id: str = "one", **fields: Any) -> Node:
    """Return a node that is READY."""
    world.nodes.create(PARENT, node_id, FIELDS | fields)
    await pass_time(time, 60, step=30)
    node = world.nodes.get(f"{PARENT}/nodes/{node_id}")
    assert node.state == "READY"
    return node


def refusal(call: Callable[[], object]) -> tuple[int, str]:
    """Return code and text of the error of a call, without the number that is another each time."""
    with pytest.raises(ApiError) as raised:
        call()
    status = raised.value.status
    return status.code, status.message.partition(" [EID:")[0]


def operation(begun: Operation) -> tuple[str, str, str]:
    return begun.verb, begun.target, begun.before


def test_a_node_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        assert not world.nodes.has(NODE)
        for call in (
            world.nodes.get,
            *(lambda name, call=call: call(world, name) for call in CALLS.values()),
        ):
            assert refusal(lambda call=call: call(NODE)) == (  # type: ignore[misc]
                Code.NOT_FOUND,
                f"Resource '{NODE}' was not found",
            )
        for name in ("one", f"{PARENT}/queuedResources/one", f"{NODE}/more"):
            assert refusal(lambda name=name: world.nodes.get(name)) == (  # type: ignore[misc]
                Code.INVALID_ARGUMENT,
                f"Invalid resource field value in the request: '{name}'.",
            )

    play(tmp_path, story)


def test_a_name_is_taken_by_one_node_and_given_again_to_the_same_request(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        context = RequestContext(request_id="r1")
        begun = world.nodes.create(PARENT, "one", FIELDS, context)
        assert operation(begun) == ("create", NODE, "CREATING")
        assert world.nodes.has(NODE)
        assert world.nodes.create(PARENT, "one", FIELDS, context).name == begun.name
        for other in (RequestContext(), RequestContext(request_id="r2")):
            assert refusal(lambda other=other: world.nodes.create(PARENT, "one", FIELDS, other)) == (  # type: ignore[misc]
                Code.ALREADY_EXISTS,
                f"Resource '{NODE}' already exists",
            )
        deleted = world.nodes.delete(NODE, context)
        assert world.nodes.delete(NODE, context).name == deleted.name
        assert deleted.name != begun.name

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("parent", "node_id", "message"),
    [
        (PARENT, "One", "Invalid node ID 'One'"),
        ("projects/p", "one", "Invalid resource field value in the request: 'projects/p/nodes/one'."),
    ],
)
def test_a_new_node_needs_a_name_that_can_be(tmp_path: Path, parent: str, node_id: str, message: str) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        code, text = refusal(lambda: world.nodes.create(parent, node_id, FIELDS))
        assert (code, text.startswith(message)) == (Code.INVALID_ARGUMENT, True)
        assert world.idle()

    play(tmp_path, story)


def test_each_node_has_an_id_of_62_bits_and_addresses_of_its_own(tmp_path: Path) -> None:
    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        world.nodes.create(PARENT, "one", FIELDS)
        world.nodes.create(PARENT, "two", FIELDS | {"acceleratorType": "v3-32"})
        one, two = world.nodes.get(NODE), world.nodes.get(TWO)
        assert one.addresses == ("127.77.0.1",)
        assert two.addresses == ("127.77.0.2", "127.77.0.3", "127.77.0.4", "127.77.0.5")
        assert all(1 << 61 <= node.uid < 1 << 62 for node in (one, two))
        assert one.uid != two.uid
        assert [host.address for host in world.nodes.hosts()] == [*one.addresses, *two.addresses]

    play(tmp_path, story)


STATES = {
    "CREATING": ({"delete"}, None),
    "READY": (set(CALLS) - {"start"}, None),
    "STOPPING": (set(), "stop"),
    "STOPPED": ({"delete", "update", "start"}, "stop"),
    "DELETING": (set(), "delete"),
    "REPAIRING": ({"delete"}, "perform maintenance"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_for_the_states_that_allow_it(tmp_path: Path, state: str, call: str) -> None:
    allowed, way = STATES[state]

    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        if state == "CREATING":
            world.nodes.create(PARENT, "one", FIELDS)
        else:
            await ready(world, time)
        if way:
            held = None if state == "STOPPED" else world.faults.add("stuck-operation", method="*")
            CALLS[way](world, NODE)
            await settle()
            assert held is None or world.faults.remove(held.id)
        assert world.nodes.get(NODE).state == state
        if call in allowed:
            CALLS[call](world, NODE)
            return
        assert refusal(lambda: CALLS[call](world, NODE)) == (
            Code.INVALID_ARGUMENT,
            f"{BAD}{call} is not supported while in state {state}",
        )

    play(tmp_path, story)


def test_a_node_is_updated_by_one_operation_at_a_time(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time)
        held = world.faults.add("stuck-operation", method="UpdateNode")
        begun = world.nodes.update(NODE, {"description": "first"}, ["description"])
        assert operation(begun) == ("update", NODE, "READY")
        await settle()
        assert refusal(lambda: CALLS["update"](world, NODE)) == (
            Code.ABORTED,
            f"Resource '{NODE}' is being updated by another operation",
        )
        world.faults.remove(held.id)
        await settle()
        assert world.nodes.get(NODE).spec["description"] == "first"
        CALLS["update"](world, NODE)

    play(tmp_path, story)


@pytest.mark.parametrize("call", ["stop", "start"])
def test_several_hosts_and_nodes_of_the_queue_have_no_power_switch(tmp_path: Path, call: str) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time, acceleratorType="v3-32")
        assert refusal(lambda: CALLS[call](world, NODE)) == (
            Code.INVALID_ARGUMENT,
            f"{BAD}{call} is only available with single TPU nodes, {NODE} has 4 hosts",
        )
        spec = {"parent": PARENT, "nodeId": "two", "node": FIELDS}
        world.queued_resources.create(PARENT, "q", {"tpu": {"nodeSpec": [spec]}})
        await pass_time(time, 100, step=10)
        assert refusal(lambda: CALLS[call](world, TWO)) == (
            Code.INVALID_ARGUMENT,
            f"{BAD}{call} is not supported for {TWO}, a node of a queued resource",
        )

    play(tmp_path, story)


@pytest.mark.parametrize("call", ["stop", "start"])
def test_two_hosts_are_several(tmp_path: Path, call: str) -> None:
    name = "projects/rehearsal/locations/us-central2-b/nodes/one"

    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        world.nodes.create(name.partition("/nodes/")[0], "one", FIELDS | {"acceleratorType": "v4-16"})
        assert refusal(lambda: CALLS[call](world, name)) == (
            Code.INVALID_ARGUMENT,
            f"{BAD}{call} is only available with single TPU nodes, {name} has 2 hosts",
        )

    play(tmp_path, story)


def test_a_node_beyond_the_quota_is_refused_and_one_of_the_queue_counts_there_already(tmp_path: Path) -> None:
    quota = "TPUV3sPerProjectPerZoneForTPUAPI"

    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        world.capacity.quotas.limits["rehearsal", "europe-west4-a", quota] = 8
        spec = {"parent": PARENT, "nodeId": "one", "node": FIELDS}
        world.queued_resources.create(PARENT, "q", {"tpu": {"nodeSpec": [spec]}})
        await pass_time(time, 100, step=10)
        assert world.nodes.get(NODE).state == "READY"
        assert refusal(lambda: world.nodes.create(PARENT, "two", FIELDS)) == (
            Code.RESOURCE_EXHAUSTED,
            f"Quota limit '{quota}' has been exceeded. Limit: 8 in zone europe-west4-a.",
        )
        assert not world.nodes.has(TWO)

    play(tmp_path, story)


def test_a_node_that_asks_for_reserved_capacity_is_of_the_reservation_that_has_some(tmp_path: Path) -> None:
    reserved = FIELDS | {"schedulingConfig": {"reserved": True}}

    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        world.capacity.reservations.add(Reservation(f"{PARENT}/reservations/r", "v3-8", 8))
        world.nodes.create(PARENT, "one", reserved)
        assert world.nodes.get(NODE).reservation == f"{PARENT}/reservations/r"
        begun = world.nodes.create(PARENT, "two", reserved)
        assert world.nodes.get(TWO).reservation == ""
        await pass_time(time, 60, step=30)
        error = world.operations.get(begun.name).error
        assert error is not None
        assert error.message.startswith("Insufficient reserved capacity.")

    play(tmp_path, story)


def test_a_spot_node_is_not_started_again(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time, schedulingConfig={"spot": True})
        world.nodes.stop(NODE)
        await settle()
        assert refusal(lambda: world.nodes.start(NODE)) == (
            Code.INVALID_ARGUMENT,
            f"{BAD}start is not supported for the preemptible node {NODE}",
        )

    play(tmp_path, story)


def test_a_stopped_node_that_finds_no_capacity_stays_stopped(tmp_path: Path) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time)
        world.nodes.stop(NODE)
        await settle()
        world.capacity.limits["europe-west4-a", "v3-8"] = 0
        begun = world.nodes.start(NODE)
        assert operation(begun) == ("start", NODE, "STOPPED")
        await settle()
        ended = world.operations.get(begun.name)
        assert ended.error is not None
        assert (ended.error.code, world.nodes.get(NODE).state) == (Code.RESOURCE_EXHAUSTED, "STOPPED")

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("workers", "noticed"), [([], (0,)), (["0"], (0,)), (["3"], (3,)), (["2", "1"], (2,))]
)
def test_maintenance_is_announced_to_the_first_worker_that_is_named(
    tmp_path: Path, workers: list[str], noticed: tuple[int, ...]
) -> None:
    async def story(world: World, time: ManualTime, hosts: RecordedHosts) -> None:
        node = await ready(world, time, acceleratorType="v3-32")
        begun = world.nodes.simulate_maintenance(NODE, workers)
        assert operation(begun) == ("simulateMaintenanceEvent", NODE, "READY")
        await settle()
        names = {host.worker: host.hostname for host in node.hosts()}
        assert hosts.notices == [
            (names[worker], "TERMINATE_ON_HOST_MAINTENANCE", False) for worker in noticed
        ]
        assert world.nodes.get(NODE).maintenance_workers == noticed

    play(tmp_path, story)


@pytest.mark.parametrize("worker", ["4", "-1", "x", "00"])
def test_a_worker_that_the_node_does_not_have_is_refused(tmp_path: Path, worker: str) -> None:
    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time, acceleratorType="v3-32")
        expected = Code.INVALID_ARGUMENT, f"{BAD}{NODE} has no worker {worker}"
        assert refusal(lambda: world.nodes.simulate_maintenance(NODE, [worker])) == expected
        assert refusal(lambda: world.nodes.guest_attributes(NODE, [worker], "")) == expected

    play(tmp_path, story)


def test_guest_attributes_that_no_worker_has_are_not_found(tmp_path: Path) -> None:
    """As Compute Engine says it: they may be published later."""

    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        await ready(world, time)
        for path in ("hostkeys/ssh", "host", "hostkeys/ssh-ed25519/more"):
            code, text = refusal(lambda path=path: world.nodes.guest_attributes(NODE, ["0"], path))
            assert (code, text) == (5, f"The resource '{path}' of type 'Guest Attribute' was not found.")

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("workers", "path", "expected"),
    [
        ([], "", [["hostkeys/ssh-ed25519=AAAA{0}", "guestInventory/Hostname"]] * 4),
        ([""], "hostkeys/", [["hostkeys/ssh-ed25519=AAAA{0}"]] * 4),
        (["2"], "hostkeys", [["hostkeys/ssh-ed25519=AAAA2"]]),
        (
            ["3", "1"],
            "hostkeys/ssh-ed25519",
            [["hostkeys/ssh-ed25519=AAAA3"], ["hostkeys/ssh-ed25519=AAAA1"]],
        ),
    ],
)
def test_guest_attributes_are_those_under_a_path_a_list_for_each_worker(
    tmp_path: Path, workers: list[str], path: str, expected: list[list[str]]
) -> None:
    def shown(attribute: GuestAttribute, name: str) -> str:
        value = "" if attribute.value == name else f"={attribute.value}"
        return f"{attribute.namespace}/{attribute.key}{value}"

    async def story(world: World, time: ManualTime, _: RecordedHosts) -> None:
        node = await ready(world, time, acceleratorType="v3-32")
        chosen = [int(worker) for worker in workers if worker] or range(4)
        lists = world.nodes.guest_attributes(NODE, workers, path)
        names = [node.hosts()[worker].hostname for worker in chosen]
        assert [
            [shown(attribute, name) for attribute in listed]
            for name, listed in zip(names, lists, strict=True)
        ] == [[text.format(worker) for text in texts] for worker, texts in zip(chosen, expected, strict=True)]

    play(tmp_path, story)


def test_a_page_has_the_nodes_of_a_zone_or_of_all_but_some(tmp_path: Path) -> None:
    other = "projects/rehearsal/locations/us-central1-a"

    async def story(world: World, _: ManualTime, __: RecordedHosts) -> None:
        for parent, node_id in ((PARENT, "one"), (PARENT, "two"), (other, "one")):
            world.nodes.create(parent, node_id, FIELDS)

        def listed(parent: str, size: int = 0, token: str = "", without: tuple[str, ...] = ()) -> list[str]:
            nodes, following = world.nodes.page(parent, size, token, without)
            return [*(node.name for node in nodes), *(["..."] if following else [])]

        everywhere = "projects/rehearsal/locations/-"
        assert listed(PARENT) == [NODE, TWO]
        assert listed(PARENT, 1) == [NODE, "..."]
        assert listed(everywhere) == [NODE, TWO, f"{other}/nodes/one"]
        assert listed(everywhere, without=("europe-west4-a",)) == [f"{other}/nodes/one"]
        assert listed(PARENT, without=("us-central1-a",)) == [NODE, TWO]

    play(tmp_path, story)
