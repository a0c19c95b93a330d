"""The catalogue: facts of types that people use, and rules that hold for all of them."""

from __future__ import annotations

import math

import pytest

from tpuctl.accelerators import (
    ALIASES,
    accelerator,
    catalogue,
    is_generation,
    known,
    of_topology,
    region,
    zones,
)
from tpuctl.errors import UsageError
from tpuctl.images import PLAIN

ALL = list(catalogue().values())


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
def test_hosts_chips_and_cores_are_as_documented(
    name: str, hosts: int, chips: int, cores: int, chips_per_host: int
) -> None:
    tpu_type = accelerator(name)
    assert (tpu_type.hosts, tpu_type.chips, tpu_type.cores) == (hosts, chips, cores)
    assert tpu_type.chips_per_host == chips_per_host


class TestEveryType:
    def test_has_the_chips_of_its_topology(self) -> None:
        products = {each.type: math.prod(map(int, each.topology.split("x"))) for each in ALL}
        assert products == {each.type: each.chips for each in ALL}

    def test_has_hosts_with_equally_many_chips_and_four_each_if_there_are_several(self) -> None:
        assert [each.type for each in ALL if each.chips % each.hosts] == []
        assert [each.type for each in ALL if each.chips_per_host not in (1, 4, 8)] == []
        assert [each.type for each in ALL if each.hosts > 1 and each.chips_per_host != 4] == []

    def test_counts_cores_or_chips_in_its_name(self) -> None:
        for each in ALL:
            prefix, _, number = each.type.rpartition("-")
            size = each.chips if prefix in ("v5litepod", "v6e") else each.cores
            assert int(number) == size, each.type

    def test_has_zones_and_a_runtime(self) -> None:
        assert [each.type for each in ALL if not each.zones or set(each.zones) - set(zones())] == []
        assert [each.type for each in ALL if each.generation not in PLAIN[each.base_runtime]] == []

    def test_is_documented_in_zones_that_the_catalogue_has(self) -> None:
        assert [each.type for each in ALL if not set(each.documented) <= set(each.zones)] == []
        assert [each.type for each in ALL if not each.documented] == []

    def test_is_found_by_its_name(self) -> None:
        assert [each.type for each in ALL if accelerator(each.type) is not each] == []


def test_types_of_a_generation_are_sorted_by_size() -> None:
    by_generation: dict[str, list[int]] = {}
    for tpu_type in catalogue().values():
        by_generation.setdefault(tpu_type.generation, []).append(tpu_type.chips)
    assert len(by_generation) == 6
    assert all(sizes == sorted(set(sizes)) for sizes in by_generation.values())


@pytest.mark.parametrize(
    ("typed", "first"),
    [("v3-9", "v3-8"), ("v3-30", "v3-32"), ("v3-100000", "v3-2048"), ("v5litepod-17", "v5litepod-16"),
     ("v3_8", "v3-8"), ("v5litpod-8", "v5litepod-8"), ("v5e-9", "v5litepod-8"), ("v5-8", "v5litepod-8"),
     ("v5", "v5litepod-8")],
)  # fmt: skip
def test_an_unknown_type_names_the_nearest(typed: str, first: str) -> None:
    with pytest.raises(UsageError, match=f"no accelerator type '{typed}'") as refused:
        known(typed)
    assert refused.value.facts["nearest"][0] == first
    assert refused.value.hint.startswith(f"The nearest are {first}")


@pytest.mark.parametrize("size", ["9" * 5000, "²"])
def test_a_size_that_is_no_number_of_cores_is_an_unknown_type(size: str) -> None:
    with pytest.raises(UsageError, match="There is no accelerator type"):
        known(f"v3-{size}")


def test_capital_letters_are_accepted() -> None:
    assert accelerator("V3-8").type == "v3-8"


@pytest.mark.parametrize(
    ("typed", "name"),
    [("v5e-8", "v5litepod-8"), ("v5lite-8", "v5litepod-8"), ("V5e-16", "v5litepod-16"), ("v6-4", "v6e-4"),
     ("trillium-8", "v6e-8"), ("tpu-v3-8", "v3-8"), ("tpu-v5e-8", "v5litepod-8")],
)  # fmt: skip
def test_names_that_people_use_are_understood(typed: str, name: str) -> None:
    assert accelerator(typed).type == name


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_is_of_a_generation(alias: str) -> None:
    assert accelerator(f"{alias}-8").type == f"{ALIASES[alias]}-8"
    assert ALIASES[alias] not in ALIASES


@pytest.mark.parametrize(
    ("typed", "types"),
    [("v3", "v3-8, v3-32, v3-64, v3-128, ... v3-2048"), ("tpu-v3", "v3-8, v3-32, v3-64, v3-128, ... v3-2048"),
     ("v6e", "v6e-1, v6e-4, v6e-8, v6e-16, ... v6e-256"),
     ("trillium", "v6e-1, v6e-4, v6e-8, v6e-16, ... v6e-256"),
     ("v5e", "v5litepod-1, v5litepod-4, v5litepod-8, v5litepod-16, ... v5litepod-256")],
)  # fmt: skip
def test_a_generation_without_a_size_is_answered_with_its_types(typed: str, types: str) -> None:
    with pytest.raises(UsageError, match=f"^'{typed}' is a TPU generation without a size") as refused:
        accelerator(typed)
    assert refused.value.hint == f"Choose one of its types: {types}."


@pytest.mark.parametrize("typed", ["v7", "tpu7x", "ironwood"])
def test_a_generation_that_few_projects_have_is_answered_with_where_it_is(typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        accelerator(typed)
    assert refused.value.hint == (
        "TPU7x (Ironwood) is offered by Compute Engine and GKE; the Cloud TPU API has it in a few projects "
        "only. Name a size, as in tpu7x-8."
    )


def test_of_a_type_outside_the_catalogue_only_what_its_name_says_is_known() -> None:
    """The API may list it; whoever only looks into the catalogue refuses it."""
    for typed, name, generation, runtime in (
        ("tpu7x-8", "tpu7x-8", "tpu7x", ""),
        ("v7x-8", "tpu7x-8", "tpu7x", ""),
        ("v9-8", "v9-8", "v9", ""),
        ("v5e-12", "v5litepod-12", "v5e", "v2-alpha-tpuv5-lite"),
    ):
        kind = accelerator(typed)
        assert (kind.type, kind.generation, kind.base_runtime) == (name, generation, runtime), typed
        assert (kind.is_known, kind.hosts, kind.chips, kind.chips_per_host) == (False, 0, 0, 0)
        assert bool(kind.zones) is (generation == "v5e")
    assert known("tpu7x-8").type == "tpu7x-8"
    with pytest.raises(UsageError, match="not known"):
        of_topology("2x2x1", "tpu7x-8")


@pytest.mark.parametrize("typed", ["", "A100", "-", "--", "v99", "v99-8", "v8-8", "tpu"])
def test_a_type_that_is_near_no_other_gets_the_generations_with_a_type_of_each(typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        known(typed)
    assert refused.value.hint == (
        "The generations, each with a type: "
        "v2 (v2-8), v3 (v3-8), v4 (v4-8), v5e (v5litepod-8), v5p (v5p-8), v6e (v6e-8)."
    )


def test_zones_are_sorted_and_have_a_region() -> None:
    assert zones() == sorted(set(zones()))
    assert "europe-west4-a" in zones()
    assert region("europe-west4-a") == "europe-west4"


def test_a_slice_is_offered_in_the_zones_of_slices() -> None:
    assert "us-central1-b" in accelerator("v2-8").zones
    assert "us-central1-b" not in accelerator("v2-32").zones


@pytest.mark.parametrize(
    ("name", "expected"),
    [("v3", True), ("v5e", True), ("trillium", True), ("TPU-V4", True), ("v5litepod", True), ("v3-8", False),
     ("v9", False), ("v", False), ("v7", False), ("8", False), ("v3-", False), ("", False)],
)  # fmt: skip
def test_a_generation_is_a_name_without_a_size(name: str, expected: bool) -> None:
    assert is_generation(name) is expected


@pytest.mark.parametrize(
    ("topology", "name", "expected"),
    [("4x4", "v3", "v3-32"), ("4x4", "v6e", "v6e-16"), ("2x4", "trillium", "v6e-8"),
     ("16x16", "tpu-v5e", "v5litepod-256"), ("2x2x2", "v4", "v4-16"), ("16x32", "", "v3-1024"),
     ("4x4x212", "", "v5p-6784"), ("4x4", "v3-32", "v3-32"), ("2x8", "v6e-16", "v6e-16"),
     ("2x4x2", "v4-32", "v4-32")],
)  # fmt: skip
def test_a_topology_is_that_of_a_type(topology: str, name: str, expected: str) -> None:
    assert of_topology(topology, name).type == expected


@pytest.mark.parametrize(
    "topology",
    ["", "4", "4x", "x4", "0x4", "04x4", "4x0", "4X4", "4x4x4x4", "4x4 ", "4 x 4", "10000x1", "-4x-4"],
)
def test_what_is_no_topology_is_told_what_one_is(topology: str) -> None:
    with pytest.raises(UsageError, match=f"^'{topology}' is no topology") as refused:
        of_topology(topology, "v3")
    assert refused.value.hint == "It is chips by chips: 4x4, or 2x2x4."


def test_a_topology_of_several_types_is_answered_with_them() -> None:
    with pytest.raises(UsageError) as refused:
        of_topology("2x2x1")
    assert str(refused.value) == "2x2x1 is the topology of v4-8, v5p-8."
    assert refused.value.hint == "Name one of them."


def test_a_topology_of_no_type_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        of_topology("3x3", "v6e")
    assert str(refused.value) == "No type of v6e has the topology 3x3."
    assert refused.value.hint == "There are 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16."
    with pytest.raises(UsageError, match=r"^No type has the topology 3x3\.$") as refused:
        of_topology("3x3")
    assert refused.value.hint.startswith("There are 2x2, 4x4, 8x8, ")
    assert refused.value.hint.count(" 2x2,") == 1, "each is named once"


@pytest.mark.parametrize("topology", ["4x4", "2x2", "2x8"])
def test_a_topology_of_another_number_of_chips_is_refused(topology: str) -> None:
    with pytest.raises(UsageError) as refused:
        of_topology(topology, "v6e-8")
    assert str(refused.value).startswith(f"{topology} is no topology of v6e-8: it has 8 chips, as 2x4.")


def test_a_topology_of_another_number_of_sides_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        of_topology("2x2x4", "v3-32")
    assert str(refused.value) == "2x2x4 is no topology of v3-32: it has 16 chips, as 4x4."
    assert refused.value.hint == "Leave out --topology, or give one of 16 chips."
    assert refused.value.facts == {"accelerator": "v3-32"}
    with pytest.raises(UsageError, match="4x4 is no topology of v4-32"):
        of_topology("4x4", "v4-32")


def test_a_topology_of_a_type_that_there_is_not_is_refused_for_the_type() -> None:
    with pytest.raises(UsageError, match="no accelerator type 'v3-9'"):
        of_topology("4x4", "v3-9")


def test_an_error_has_what_was_typed_and_what_is_nearest_for_programs() -> None:
    with pytest.raises(UsageError) as refused:
        known("v3-40")
    assert refused.value.facts == {"accelerator": "v3-40", "nearest": ["v3-32", "v3-64", "v3-8"]}
    assert refused.value.hint == "The nearest are v3-32, v3-64, v3-8."
    with pytest.raises(UsageError) as refused:
        accelerator("v3")
    assert refused.value.facts["nearest"] == ["v3-8", "v3-32", "v3-64", "v3-128", "v3-256", "v3-512"]


@pytest.mark.parametrize(("typed", "types"), [("v5", "v5litepod-8, v5p-8"), ("v5-16", "v5litepod-8, v5p-8")])
def test_a_generation_of_several_kinds_is_answered_with_a_type_of_each(typed: str, types: str) -> None:
    with pytest.raises(UsageError) as refused:
        known(typed)
    assert refused.value.hint == f"The nearest are {types}."


@pytest.mark.parametrize(
    ("name", "api_enum"),
    [("v2-8", "V2"), ("v3-8", "V3"), ("v4-8", "V4"), ("v5litepod-4", "V5LITE_POD"), ("v5p-8", "V5P"),
     ("v6e-4", "V6E")],
)  # fmt: skip
def test_generations_are_named_as_in_the_api(name: str, api_enum: str) -> None:
    assert accelerator(name).api_enum == api_enum


@pytest.mark.parametrize(
    ("name", "runtime"),
    [("v3-8", "tpu-ubuntu2204-base"), ("v5e-8", "v2-alpha-tpuv5-lite"), ("v5p-8", "v2-alpha-tpuv5"),
     ("v6e-8", "v2-alpha-tpuv6e")],
)  # fmt: skip
def test_the_plain_runtime_is_that_of_the_generation(name: str, runtime: str) -> None:
    assert accelerator(name).base_runtime == runtime


def test_the_region_of_a_zone_is_all_but_its_letter() -> None:
    assert region("us-central1-b") == "us-central1"
    assert {region(zone) for zone in zones()} >= {"us-central1", "europe-west4"}
