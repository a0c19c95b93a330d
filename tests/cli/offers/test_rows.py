"""The fields of offers and prices in JSON, on which programs of users rely, and the lines of their tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
ZONE = "europe-west4-a"
PRICE = "amount currency source as_of reason"
V3_8 = {"type": "v3-8", "generation": "v3", "chips": 4, "cores": 8, "hosts": 1, "topology": "2x2"}
BOTH = ["API", "catalogue"]


@pytest.fixture(autouse=True)
def running(simulator: RunningSimulator) -> RunningSimulator:
    """Every command of these tests finds a simulator."""
    return simulator


def cells(result: CommandResult, number: int) -> list[str]:
    """Return the cells of a line of a table, which have more than one blank between them."""
    return re.split(r" {2,}", result.out.splitlines()[number].strip())


def amounts(prices: dict[str, Any]) -> str:
    assert " ".join(prices) == PRICE
    assert prices["reason"] == ""
    assert prices["source"] == "made up by the simulator"
    assert prices["as_of"]
    return f"{prices['amount']} {prices['currency']}"


def test_zones_have_their_types(tpuctl: Tpuctl) -> None:
    listed = tpuctl("zones", "--zone", ZONE, "--json").json
    assert " ".join(listed) == "schema zones silent"
    (zone,) = listed["zones"]
    assert " ".join(zone) == "zone types source"
    assert (zone["zone"], zone["source"], listed["silent"]) == (ZONE, "API", {})
    table = tpuctl("zones", "--zone", ZONE)
    assert cells(table, 0) == ["ZONE", "TYPES", "LARGEST", "SOURCE"]
    zone_cell, families, largest, source = cells(table, 1)
    assert (zone_cell, source) == (ZONE, "API")
    assert families.split(", ") == list(dict.fromkeys(name.rpartition("-")[0] for name in zone["types"]))
    sizes: dict[str, list[int]] = {}
    for name in zone["types"]:
        family, _, size = name.rpartition("-")
        sizes.setdefault(family, []).append(int(size))
    assert largest.split(", ") == [f"{family}-{max(known)}" for family, known in sizes.items()]


def test_a_type_in_a_zone_has_quotas_and_prices(tpuctl: Tpuctl) -> None:
    listed = tpuctl("zones", "v3-8", "--zone", ZONE, "--json").json
    assert " ".join(listed) == "schema type zones silent"
    (row,) = listed["zones"]
    fields = "zone offered documented sources quota spot_quota price_per_hour spot_price_per_hour"
    assert " ".join(row) == fields
    assert (listed["type"], row["zone"], row["offered"], row["sources"]) == ("v3-8", ZONE, True, BOTH)
    assert {" ".join(row[name]) for name in ("quota", "spot_quota")} == {"limit unit reason"}
    assert (amounts(row["price_per_hour"]), amounts(row["spot_price_per_hour"])) == (
        "9.768 USD",
        "2.9304 USD",
    )
    table = tpuctl("zones", "v3-8", "--zone", ZONE)
    headings = ["ZONE", "OFFERED", "DOCUMENTED", "SOURCE", "QUOTA", "SPOT QUOTA", "PRICE/HOUR", "SPOT/HOUR"]
    assert cells(table, 0) == headings
    assert cells(table, 1)[:4] == [ZONE, "yes", "yes", "API, catalogue"]
    assert cells(table, 1)[-2:] == ["9.77 USD", "2.93 USD"]


def test_types_have_their_facts(tpuctl: Tpuctl) -> None:
    listed = tpuctl("types", "--zone", ZONE, "--json").json
    assert (" ".join(listed), listed["silent"]) == ("schema types silent", {})
    (row,) = (row for row in listed["types"] if row["type"] == "v3-8")
    assert row == {**V3_8, "sources": BOTH, "zones": [ZONE]}
    table = tpuctl("types", "--zone", ZONE)
    headings = ["TYPE", "GENERATION", "CHIPS", "CORES", "HOSTS", "TOPOLOGY", "SOURCE", "ZONES"]
    assert cells(table, 0) == headings
    lines = [cells(table, number) for number in range(len(table.out.splitlines()))]
    assert ["v3-8", "v3", "4", "8", "1", "2x2", "API, catalogue", ZONE] in lines


def test_a_line_names_four_zones_and_the_number_of_the_others(tpuctl: Tpuctl) -> None:
    rows = {row["type"]: row["zones"] for row in tpuctl("types", "--json").json["types"]}
    table = tpuctl("types")
    lines = {line[0]: line[-1] for line in (cells(table, number) for number in range(1, len(rows) + 1))}
    for name, zones in rows.items():
        more = f" and {len(zones) - 4} more" if len(zones) > 4 else ""
        assert lines[name] == ", ".join(zones[:4]) + more
    assert {min(len(zones), 5) for zones in rows.values()} >= {1, 5}


def test_runtimes_have_their_zones(tpuctl: Tpuctl) -> None:
    listed = tpuctl("runtimes", "--zone", ZONE, "--json").json
    assert (" ".join(listed), listed["silent"]) == ("schema runtimes silent", {})
    assert {" ".join(row) for row in listed["runtimes"]} == {"runtime default_of sources zones"}
    table = tpuctl("runtimes", "--zone", ZONE)
    assert cells(table, 0) == ["RUNTIME", "DEFAULT OF", "SOURCE", "ZONES"]
    lines = [cells(table, number) for number in range(1, len(table.out.splitlines()))]
    for row, line in zip(listed["runtimes"], lines, strict=True):
        default = ", ".join(row["default_of"]) or "-"
        assert line == [row["runtime"], default, ", ".join(row["sources"]), ZONE], (
            "of one zone it is no 'all'"
        )


def test_a_price_is_that_of_an_hour(tpuctl: Tpuctl) -> None:
    listed = tpuctl("price", "v3-8", "--zone", ZONE, "--json").json
    assert " ".join(listed) == "schema type slices per prices"
    assert (listed["type"], listed["slices"], listed["per"]) == ("v3-8", 1, "hour")
    (row,) = listed["prices"]
    assert " ".join(row) == "region on_demand spot"
    assert (row["region"], amounts(row["on_demand"]), amounts(row["spot"])) == (
        "europe-west4",
        "9.768 USD",
        "2.9304 USD",
    )
    table = tpuctl("price", "v3-8", "--zone", ZONE)
    assert cells(table, 0) == ["REGION", "ON DEMAND/HOUR", "SPOT/HOUR", "SOURCE"]
    spot = tpuctl("price", "v3-8", "--zone", ZONE, "--spot")
    assert (cells(spot, 0), cells(spot, 1)[:2]) == (
        ["REGION", "SPOT/HOUR", "SOURCE"],
        ["europe-west4", "2.93 USD"],
    )
    assert (
        tpuctl("price", "v3-8", "--slices", "1001").code == tpuctl("price", "v3-8", "--slices", "0").code == 2
    )
    assert tpuctl("price", "v3-8", "--slices", "1000", "--zone", ZONE).code == 0
