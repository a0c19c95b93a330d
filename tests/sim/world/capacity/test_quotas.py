"""The quotas in which a node counts: their ids, as public logs show them, in its zone and in its region."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl.accelerators import catalogue
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.world.capacity.capacity import Demand, Quotas, quotas_of

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
