"""The catalogue: facts of types that people use, and laws that hold for all of them."""

from __future__ import annotations

import math

import pytest

from tpuctl.accelerators import (
    RUNTIME_BASES,
    Accelerator,
    accelerator,
    catalogue,
    region,
    zones,
)
from tpuctl.errors import UsageError

ALL = [pytest.param(one, id=name) for name, one in catalogue().items()]


@pytest.mark.parametrize(
    ("name", "hosts", "chips", "cores", "chips_per_host"),
    [
        ("v2-8", 1, 4, 8, 4),
        ("v3-8", 1, 4, 8, 4),
        ("v3-32", 4, 16, 32, 4),
        ("v4-8", 1, 4, 8, 4),
        ("v4-16", 2, 8, 16, 4),
        ("v5litepod-1", 1, 1, 1, 1),
        ("v5litepod-8", 1, 8, 8, 8),
        ("v5litepod-16", 4, 16, 16, 4),
        ("v5p-8", 1, 4, 8, 4),
        ("v5p-16", 2, 8, 16, 4),
        ("v6e-8", 1, 8, 8, 8),
        ("v6e-16", 4, 16, 16, 4),
    ],
)
def test_hosts_chips_and_cores_are_as_documented(name, hosts, chips, cores, chips_per_host) -> None:
    one = accelerator(name)
    assert (one.hosts, one.chips, one.cores, one.chips_per_host) == (hosts, chips, cores, chips_per_host)


@pytest.mark.parametrize("one", ALL)
class TestEveryType:
    def test_its_chips_are_the_product_of_its_topology(self, one: Accelerator) -> None:
        assert math.prod(map(int, one.topology.split("x"))) == one.chips

    def test_its_hosts_have_equally_many_chips(self, one: Accelerator) -> None:
        assert one.chips % one.hosts == 0
        assert one.chips_per_host in (1, 4, 8)

    def test_several_hosts_have_four_chips_each(self, one: Accelerator) -> None:
        assert one.hosts == 1 or one.chips_per_host == 4

    def test_its_number_counts_cores_or_chips(self, one: Accelerator) -> None:
        prefix, _, number = one.type.rpartition("-")
        counted = one.chips if prefix in ("v5litepod", "v6e") else one.cores
        assert int(number) == counted

    def test_it_has_a_zone_and_a_runtime(self, one: Accelerator) -> None:
        assert one.zones
        assert set(one.zones) <= set(zones())
        assert one.base_runtime in RUNTIME_BASES

    def test_it_is_found_by_its_name(self, one: Accelerator) -> None:
        assert accelerator(one.type) is one


def test_types_of_a_generation_are_sorted_by_size() -> None:
    by_generation: dict[str, list[int]] = {}
    for one in catalogue().values():
        by_generation.setdefault(one.generation, []).append(one.chips)
    assert len(by_generation) == 6
    assert all(sizes == sorted(set(sizes)) for sizes in by_generation.values())


@pytest.mark.parametrize(
    ("typed", "first"),
    [("v3-9", "v3-8"), ("v3-30", "v3-32"), ("v3-100000", "v3-2048"), ("v5litepod-17", "v5litepod-16"),
     ("v3_8", "v3-8"), ("v5lite-16", "v5litepod-16")],
)  # fmt: skip
def test_an_unknown_type_names_the_nearest(typed: str, first: str) -> None:
    with pytest.raises(UsageError, match=f"no accelerator type '{typed}'") as refused:
        accelerator(typed)
    assert refused.value.facts["nearest"][0] == first
    assert refused.value.hint.startswith(f"The nearest are {first}")


def test_capitals_are_understood() -> None:
    assert accelerator("V3-8").type == "v3-8"


@pytest.mark.parametrize("typed", ["", "A100", "-", "--"])
def test_a_word_that_is_near_nothing_names_one_of_each_generation(typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        accelerator(typed)
    examples = refused.value.hint.removeprefix("Try ").rstrip(".").split(", ")
    assert sorted(catalogue()[name].generation for name in examples) == [
        "v2",
        "v3",
        "v4",
        "v5e",
        "v5p",
        "v6e",
    ]


def test_zones_are_sorted_and_have_a_region() -> None:
    assert zones() == sorted(set(zones()))
    assert "europe-west4-a" in zones()
    assert region("europe-west4-a") == "europe-west4"


def test_a_slice_is_offered_in_the_zones_of_slices() -> None:
    assert "us-central1-b" in accelerator("v2-8").zones
    assert "us-central1-b" not in accelerator("v2-32").zones
