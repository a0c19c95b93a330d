"""Quotas: which limit holds for a type in a zone, and how it is said."""

from __future__ import annotations

import pytest

from tpuctl.accelerators import accelerator
from tpuctl.catalogue.quotas import UNLIMITED, Quota, QuotaLimit, QuotaList


def limit(
    generation: str, number: int, *places: str, spot: bool = False, slices: bool | None = None
) -> QuotaLimit:
    return QuotaLimit(generation, spot, slices, places, number)


def quota(name: str, zone: str, *rows: QuotaLimit, spot: bool = False) -> Quota:
    return QuotaList(rows, "table of quotas").quota(accelerator(name), zone, spot=spot)


@pytest.mark.parametrize(
    ("quota", "value", "text"),
    [
        (Quota(8, "cores"), 8, "8 cores"),
        (Quota(0, "chips"), 0, "0 chips"),
        (Quota(UNLIMITED, "cores"), "unlimited", "unlimited"),
        (Quota(UNLIMITED - 1, "cores"), UNLIMITED - 1, f"{UNLIMITED - 1} cores"),
        (Quota(None, "cores", "nobody says"), None, "unknown"),
    ],
)
def test_a_quota_is_said_in_json_and_in_a_table(quota: Quota, value: object, text: str) -> None:
    assert quota.value == value
    assert str(quota) == text


def test_no_project_is_granted_as_much_as_no_limit_means() -> None:
    assert UNLIMITED > 1_000_000_000


@pytest.mark.parametrize(
    ("row", "applies"),
    [
        (limit("v3", 1, "us-east1-d"), True),
        (limit("v3", 1, "us-east1"), True),
        (limit("v3", 1, "us-west1", "us-east1"), True),
        (limit("v3", 1, "us-east1", slices=False), True),
        (limit("v3", 1, "us-east1", slices=True), False),
        (limit("v2", 1, "us-east1"), False),
        (limit("v3", 1, "us-east1", spot=True), False),
        (limit("v3", 1, "us-east1-c"), False),
        (limit("v3", 1, "us-east"), False),
        (limit("v3", 1), False),
    ],
)
def test_a_row_limits_its_generation_in_its_places(row: QuotaLimit, applies: bool) -> None:
    assert row.applies_to(accelerator("v3-8"), "us-east1-d", spot=False) is applies


def test_spot_and_slices_of_several_hosts_have_rows_of_their_own() -> None:
    rows = [
        limit("v3", 8, "us-east1", slices=False),
        limit("v3", 32, "us-east1", slices=True),
        limit("v3", 16, "us-east1", spot=True),
    ]
    assert quota("v3-8", "us-east1-d", *rows).limit == 8
    assert quota("v3-32", "us-east1-d", *rows).limit == 32
    assert quota("v3-8", "us-east1-d", *rows, spot=True).limit == 16
    assert quota("v3-32", "us-east1-d", *rows, spot=True).limit == 16


def test_a_slice_of_two_hosts_is_limited_as_slices_are() -> None:
    assert accelerator("v4-16").hosts == 2
    assert quota("v4-16", "us-central2-b", limit("v4", 64, "us-central2", slices=True)).limit == 64


def test_of_a_zone_and_its_region_the_least_limit_holds() -> None:
    zone, region = limit("v3", 24, "us-east1-d"), limit("v3", 16, "us-east1")
    assert quota("v3-8", "us-east1-d", zone, region) == Quota(16, "cores")
    assert quota("v3-8", "us-east1-d", zone) == Quota(24, "cores")


@pytest.mark.parametrize(("name", "unit"), [("v3-8", "cores"), ("v4-8", "cores"), ("v6e-8", "chips")])
def test_generations_of_one_core_a_chip_count_chips(name: str, unit: str) -> None:
    generation = accelerator(name).generation
    assert quota(name, "us-east1-d", limit(generation, 4, "us-east1")).unit == unit
    assert quota(name, "us-east1-d").unit == unit


def test_a_type_without_a_row_has_an_unknown_quota() -> None:
    assert quota("v3-8", "us-east1-d", limit("v2", 8, "us-east1")) == Quota(
        None, "cores", "the table of quotas names no quota of v3-8 in us-east1-d"
    )


def test_the_reason_why_there_are_no_rows_is_that_of_each_quota() -> None:
    unread = QuotaList((), reason="the API is off")
    assert unread.quota(accelerator("v6e-8"), "us-east5-b", spot=True) == Quota(
        None, "chips", "the API is off"
    )
