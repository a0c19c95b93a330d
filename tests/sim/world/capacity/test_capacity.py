"""How much room there is for nodes: in zones that a test has limited, and in reservations.

The quotas in which a node counts: their ids, as public logs show them, in its zone and in its region.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl.accelerators import catalogue
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.world.api_errors import ApiError, Code, Status
from tpuctl.sim.world.capacity import availability, capacity
from tpuctl.sim.world.capacity.capacity import Capacity, Demand, Quotas, Reservation, quotas_of
from tpuctl.sim.world.resources import Node, NodeFields, Operation, QueuedResource

ZONE = "europe-west4-a"
PARENT = f"projects/p/locations/{ZONE}"
ANY, R, S = (f"{PARENT}/reservations/{name}" for name in ("-", "r", "s"))
STOCKOUT = Status(Code.RESOURCE_EXHAUSTED, "no")


def node(name: str = "one", state: str = "READY", kind: str = "v3-8", **fields: Any) -> Node:
    parent = fields.pop("parent", PARENT)
    spec: Any = {"acceleratorType": kind, "runtimeVersion": "tf", **fields.pop("spec", {})}
    return Node(f"{parent}/nodes/{name}", 1, state, 0.0, spec, ("127.77.0.1",), **fields)


class World:
    """Nodes, the operations that run on them, and the capacity that they leave."""

    def __init__(self, *nodes: Node, **running: Operation) -> None:
        state: Any = SimpleNamespace(
            nodes=SimpleNamespace(all=lambda: list(nodes)),
            operations=SimpleNamespace(running_on=lambda name: running.get(name.rpartition("/")[2])),
            faults=None,
        )
        self.capacity = Capacity(state)

    def reserve(self, *reservations: Reservation) -> World:
        for reservation in reservations:
            self.capacity.reservations.add(reservation)
        return self

    def shortage(self, **options: Any) -> str:
        """Return the text of the shortage of a demand; empty if there is room."""
        parent, kind, count = (
            options.get("parent", PARENT), options.get("kind", "v3-8"), options.get("count", 1),
        )  # fmt: skip
        status = self.capacity.shortage(Demand(parent, kind, count, False, options.get("reservation", "")))
        return status.message.partition(" [EID:")[0] if status else ""


NO_MORE = (
    f'There is no more capacity in the zone "{ZONE}"; you can try in another zone where Cloud TPU Nodes are '
    "offered (see https://cloud.google.com/tpu/docs/regions)"
)
NO_RESERVED = "Insufficient reserved capacity. Contact customer support to increase your reservation."


@pytest.mark.parametrize(
    ("limit", "count", "message"),
    [(0, 1, NO_MORE), (1, 1, NO_MORE), (2, 1, ""), (2, 2, NO_MORE), (3, 2, ""), (None, 100, "")],
)
def test_nodes_beyond_the_limit_of_their_zone_and_type_find_no_room(
    limit: int | None, count: int, message: str
) -> None:
    world = World(
        node("one"),
        node("two", kind="v2-8"),
        node("three", parent="projects/p/locations/us-central1-a"),
        node("four", reservation=R),
        node("five", state="STOPPED"),
    )
    if limit is not None:
        world.capacity.limits[ZONE, "v3-8"] = limit
    assert world.capacity.used(ZONE, "v3-8") == 1
    assert world.shortage(count=count) == message
    assert world.shortage(kind="v2-8", count=9) == ""
    assert world.shortage(parent="projects/p/locations/us-central1-a", count=9) == ""


@pytest.mark.parametrize(
    ("state", "uses"),
    [
        ("CREATING", True), ("READY", True), ("STOPPING", True), ("STARTING", True), ("DELETING", True),
        ("REPAIRING", True), ("STOPPED", False), ("PREEMPTED", False), ("TERMINATED", False),
    ],
)  # fmt: skip
def test_a_node_uses_capacity_while_it_has_hosts(state: str, uses: bool) -> None:
    world = World(node(state=state))
    assert world.capacity.used(ZONE, "v3-8") == uses


@pytest.mark.parametrize(
    ("verb", "fields", "uses"),
    [
        ("create", {}, True),
        ("create", {"injected_error": STOCKOUT}, False),
        ("start", {"injected_error": STOCKOUT}, False),
        ("update", {"injected_error": STOCKOUT}, True),
        ("delete", {"injected_error": STOCKOUT}, True),
        ("delete", {}, True),
        ("delete", {"vacant": True}, False),
        ("update", {"vacant": True}, True),
    ],
)
def test_a_node_uses_none_if_its_start_is_to_fail_or_it_had_none_before(
    verb: str, fields: dict[str, Any], uses: bool
) -> None:
    world = World(node(state="CREATING"), one=Operation("o", verb, f"{PARENT}/nodes/one", 0.0, "", **fields))
    assert world.capacity.used(ZONE, "v3-8") == uses


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Demand(PARENT, "v3-8", 1, False)),
        ({"spec": {"schedulingConfig": {"spot": True}}}, Demand(PARENT, "v3-8", 1, True)),
        ({"spec": {"schedulingConfig": {"reserved": False}}}, Demand(PARENT, "v3-8", 1, False)),
        ({"spec": {"schedulingConfig": {"reserved": True}}}, Demand(PARENT, "v3-8", 1, False, ANY)),
        (
            {"spec": {"schedulingConfig": {"reserved": True}}, "reservation": R},
            Demand(PARENT, "v3-8", 1, False, R),
        ),
    ],
)
def test_a_node_demands_capacity_from_the_reservation_that_it_has_or_asks_for(
    fields: dict[str, Any], expected: Demand
) -> None:
    assert capacity.of_node(node(**fields)) == expected
    assert (expected.project, expected.zone) == ("p", ZONE)


def test_a_queued_resource_demands_its_nodes_by_place_type_and_tier() -> None:
    other = "projects/p/locations/us-central1-a"
    spot: NodeFields = {"acceleratorType": "v3-8", "schedulingConfig": {"spot": True}}
    nodes: dict[str, NodeFields] = {
        f"{PARENT}/nodes/a": {"acceleratorType": "v3-8"},
        f"{PARENT}/nodes/b": {"acceleratorType": "v3-8"},
        f"{PARENT}/nodes/c": {"acceleratorType": "v2-8"},
        f"{PARENT}/nodes/d": spot,
        f"{other}/nodes/a": {"acceleratorType": "v3-8"},
    }
    queued = QueuedResource(
        f"{PARENT}/queuedResources/q", "ACCEPTED", 0.0, 0.0, {"reservationName": R}, nodes
    )
    assert capacity.of_queued_resource(queued) == [
        Demand(PARENT, "v3-8", 2, False, R),
        Demand(PARENT, "v2-8", 1, False, R),
        Demand(PARENT, "v3-8", 1, True, R),
        Demand(other, "v3-8", 1, False, R),
    ]


@pytest.mark.parametrize(
    ("kind", "count", "units"), [("v3-8", 1, 8), ("v3-32", 2, 64), ("v5litepod-16", 2, 32)]
)
def test_demands_are_counted_in_cores(kind: str, count: int, units: int) -> None:
    assert Demand(PARENT, kind, count, False).units == units


class TestReservations:
    """Capacity that a project has reserved."""

    @pytest.mark.parametrize(
        ("kind", "units"), [("v3-8", "CORES"), ("v4-8", "CORES"), ("v5litepod-8", "CHIPS")]
    )
    def test_its_size_is_in_cores_or_chips(self, kind: str, units: str) -> None:
        reservation = Reservation(R, kind, 8)
        assert (reservation.units, reservation.start, reservation.end) == (units, 0.0, 4_102_444_800.0)

    @pytest.mark.parametrize(
        ("size", "count", "message"), [(8, 1, NO_RESERVED), (16, 1, ""), (16, 2, NO_RESERVED), (24, 2, "")]
    )
    def test_nodes_find_room_as_far_as_it_goes(self, size: int, count: int, message: str) -> None:
        world = World(node("one", reservation=R), node("two", reservation=S), node("three"))
        world.reserve(Reservation(R, "v3-8", size))
        world.capacity.limits[ZONE, "v3-8"] = 0
        assert world.capacity.reservations.used(R) == 8
        assert world.shortage(reservation=R, count=count) == message
        assert world.shortage(reservation=ANY, count=count) == message

    def test_nodes_of_any_type_of_its_generation_fit(self) -> None:
        world = World().reserve(Reservation(R, "v3-8", 32))
        assert world.shortage(reservation=R, kind="v3-32") == ""
        assert world.shortage(reservation=R, kind="v2-8") == "Reservation not found"

    @pytest.mark.parametrize(
        "reservation", [S, f"{PARENT}x/reservations/r", "projects/q/locations/europe-west4-a/reservations/-"]
    )
    def test_another_is_not_found(self, reservation: str) -> None:
        world = World().reserve(Reservation(R, "v3-8", 8))
        assert world.shortage(reservation=reservation) == "Reservation not found"

    def test_the_emptiest_is_taken_where_any_will_do(self) -> None:
        world = World(node("one", reservation=R))
        world.reserve(Reservation(R, "v3-8", 32), Reservation(S, "v3-8", 16))
        any_of_them = Demand(PARENT, "v3-8", 1, False, ANY)
        assert world.capacity.reservations.find(any_of_them).name == R
        world.reserve(Reservation(R, "v3-8", 16))
        assert world.capacity.reservations.find(any_of_them).name == S
        assert world.capacity.reservations.find(replace(any_of_them, reservation=R)).name == R

    def test_they_are_listed_by_their_place(self) -> None:
        world = World().reserve(
            Reservation(R, "v3-8", 8), Reservation("projects/q/locations/z/reservations/r", "v3-8", 8)
        )
        assert [found.name for found in world.capacity.reservations.all(f"{PARENT}/")] == [R]
        assert len(world.capacity.reservations.all()) == 2


class TestAvailability:
    """Types and runtime versions of zones."""

    def test_versions_of_tensorflow_come_in_the_forms_that_google_has(self) -> None:
        versions = [name for name in availability.RUNTIME_VERSIONS if name.startswith("tpu-vm-tf-2.16.1")]
        assert versions == [f"tpu-vm-tf-2.16.1{end}" for end in ("-pjrt", "-se", "-pod-pjrt", "-pod-se")]
        assert "tpu-vm-tf-2.18.0-pod-pjrt-v5e-and-v6" in availability.RUNTIME_VERSIONS

    @pytest.mark.parametrize(
        ("zone", "kind", "config"),
        [
            (ZONE, "v2-8", ("V2", "2x2")),
            (ZONE, "v3-32", ("V3", "4x4")),
            ("us-central2-b", "v4-8", ("V4", "2x2x1")),
            ("us-central1-a", "v5litepod-16", ("V5LITE_POD", "4x4")),
            ("us-east5-a", "v5p-8", ("V5P", "2x2x1")),
            ("us-east5-a", "v6e-8", ("V6E", "2x4")),
        ],
    )
    def test_a_type_is_found_by_its_configuration(
        self, zone: str, kind: str, config: tuple[str, str]
    ) -> None:
        name, topology = config
        fields: NodeFields = {"acceleratorConfig": {"type": name, "topology": topology}}
        assert availability.requested_accelerator(zone, fields).type == kind

    @pytest.mark.parametrize(
        ("fields", "name"),
        [
            ({"acceleratorType": "v4-8"}, "v4-8"),
            ({"acceleratorConfig": {"type": "V4", "topology": "2x2x1"}}, "V4 2x2x1"),
        ],
    )
    def test_a_type_that_a_zone_does_not_have_is_refused(self, fields: NodeFields, name: str) -> None:
        with pytest.raises(ApiError) as raised:
            availability.requested_accelerator(ZONE, fields)
        assert raised.value.status.message.startswith(
            "Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "
            f'"{name}", could not be found in the zonal accelerator configurations for "{ZONE}".'
        )


QUOTA_PARENT = "projects/p/locations/us-central1-a"
IDS = {
    # type: start of the id of a node on demand, of a preemptible one
    "v2-8": ("TPUV2s", "TPUV2sPreemptible"),
    "v2-32": ("TPUV2sPod", "TPUV2sPreemptiblePod"),
    "v3-8": ("TPUV3s", "TPUV3sPreemptible"),
    "v3-32": ("TPUV3sPod", "TPUV3sPreemptiblePod"),
    "v4-8": ("TPUV4sPod", "TPUV4sPreemptiblePod"),
    "v4-16": ("TPUV4sPod", "TPUV4sPreemptiblePod"),
    "v5litepod-8": ("TPUV5sLitepod", "TPUV5sPreemptibleLitepod"),
    "v5litepod-16": ("TPUV5sLitepod", "TPUV5sPreemptibleLitepod"),
    "v5p-8": ("TPUV5P", "TPUV5PPreemptible"),
    "v5p-16": ("TPUV5P", "TPUV5PPreemptible"),
    "v6e-8": ("TPUV6E", "TPUV6EPreemptible"),
    "v6e-16": ("TPUV6E", "TPUV6EPreemptible"),
}


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("preemptible", [False, True])
def test_a_node_counts_in_a_quota_of_its_zone_and_in_one_of_its_region(kind: str, preemptible: bool) -> None:
    stem = IDS[kind][preemptible]
    assert quotas_of(Demand(QUOTA_PARENT, kind, 1, preemptible)) == [
        ("p", "us-central1-a", f"{stem}PerProjectPerZoneForTPUAPI"),
        ("p", "us-central1", f"{stem}PerProjectPerRegionForTPUAPI"),
    ]


def test_every_generation_is_in_this_table_with_one_host_and_with_several() -> None:
    kinds = catalogue()
    forms = {(kinds[kind].generation, kinds[kind].hosts > 1) for kind in IDS}
    assert forms == {(accelerator.generation, accelerator.hosts > 1) for accelerator in kinds.values()}


@pytest.mark.parametrize(
    ("kind", "count", "units"),
    [("v3-8", 1, 8), ("v3-8", 3, 24), ("v4-8", 1, 8), ("v5litepod-8", 2, 16), ("v6e-1", 1, 1)],
)
def test_cores_count_and_chips_of_v5e_and_v6e(kind: str, count: int, units: int) -> None:
    assert Demand(QUOTA_PARENT, kind, count, preemptible=False).units == units


QUOTA_ZONE, REGION = "us-central1-a", "us-central1"
BY_ZONE, BY_REGION = "TPUV3sPerProjectPerZoneForTPUAPI", "TPUV3sPerProjectPerRegionForTPUAPI"


@pytest.fixture
def quotas() -> tuple[Quotas, FaultRegistry]:
    faults = FaultRegistry()
    state: Any = SimpleNamespace(faults=faults)
    return Quotas(state), faults


def test_every_quota_is_by_zone_or_by_region(quotas: tuple[Quotas, FaultRegistry]) -> None:
    ids = quotas[0].ids()
    starts = {start for both in IDS.values() for start in both}
    ends = {"PerProjectPerZoneForTPUAPI": "zone", "PerProjectPerRegionForTPUAPI": "region"}
    assert ids == {f"{start}{end}": dimension for start in starts for end, dimension in ends.items()}


def test_places_are_zones_or_their_regions(quotas: tuple[Quotas, FaultRegistry]) -> None:
    zones, regions = quotas[0].places("zone"), quotas[0].places("region")
    assert zones == sorted(zones)
    assert {QUOTA_ZONE, "europe-west4-a"} <= set(zones)
    assert regions == sorted({zone.rpartition("-")[0] for zone in zones})


@pytest.mark.parametrize(
    ("own", "faults", "limit"),
    [
        (None, [], None),
        (8, [], 8),
        (8, [{"limit": 4}], 4),
        (8, [{"limit": 16}], 8),
        (None, [{"limit": 16}, {"limit": 4}], 4),
        (None, [{"zone": "us-*", "project": "p"}], 0),
        (None, [{"zone": "europe-*"}], None),
        (None, [{"project": "q"}], None),
        (None, [{"quota": "TPUV2*"}], None),
        (None, [{"type": "v3-8"}], None),
    ],
)
def test_a_limit_is_the_least_of_all(
    quotas: tuple[Quotas, FaultRegistry], own: int | None, faults: list[dict[str, Any]], limit: int | None
) -> None:
    if own is not None:
        quotas[0].limits["p", QUOTA_ZONE, BY_ZONE] = own
    for options in faults:
        quotas[1].add("quota", **options)
    assert quotas[0].limit("p", QUOTA_ZONE, BY_ZONE) == limit
    assert quotas[0].limit("p", REGION, BY_REGION) is None
