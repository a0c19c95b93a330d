"""The commands zones, types, runtimes and price: sources, silent zones, quota, and what is unknown.

The fields of offers and prices in JSON, on which programs of users rely, and the lines of their tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import accelerators

Tpuctl = Callable[..., CommandResult]
ZONE = "europe-west4-a"
V3 = "TPUV3sPerProjectPerZoneForTPUAPI"


@pytest.fixture(autouse=True)
def running(simulator: RunningSimulator) -> RunningSimulator:
    """Every command of these tests finds a simulator."""
    return simulator


def lines(result: CommandResult) -> dict[str, list[str]]:
    """The lines of a table by their first cell."""
    assert result.code == 0, result.err
    return {line.split()[0]: line.split() for line in result.out.splitlines()[1:]}


class TestZones:
    def test_every_zone_is_listed_with_its_types_and_the_source(self, tpuctl: Tpuctl) -> None:
        rows = lines(tpuctl("zones"))
        assert list(rows) == accelerators.zones()
        assert rows[ZONE][-1] == "API"
        listed = tpuctl("zones", "--json").json
        assert listed["silent"] == {}
        (zone,) = [row for row in listed["zones"] if row["zone"] == ZONE]
        assert {"v2-8", "v3-8", "v3-32"} <= set(zone["types"])

    def test_a_type_is_shown_with_quota_and_price(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        simulator.world.capacity.quotas.limits["sim-project", ZONE, V3] = 16
        result = tpuctl("zones", "v3-8")
        rows = lines(result)
        assert set(rows) == set(accelerators.accelerator("v3-8").zones)
        assert rows[ZONE] == [
            ZONE, "yes", "yes", "API,", "catalogue", "16", "cores", "unlimited", "9.77", "USD", "2.93", "USD",
        ]  # fmt: skip
        assert "Prices: made up by the simulator" in result.err

    def test_documented_zones_come_first_and_those_without_quota_last(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        for zone in ("us-central1-a", "us-central1-f"):
            simulator.faults.add("quota", zone=zone, limit=0)
        rows = tpuctl("zones", "v3-8", "--json").json["zones"]
        assert [(row["zone"], row["documented"]) for row in rows] == [
            (ZONE, True), ("us-central1-b", True), ("us-east1-d", False), ("us-central1-a", True),
            ("us-central1-f", False),
        ]  # fmt: skip

    def test_the_quota_shown_is_the_one_that_refuses_a_create(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        simulator.faults.add("quota", zone=ZONE, limit=0)
        (row,) = tpuctl("zones", "v3-8", "--zone", ZONE, "--json").json["zones"]
        assert row["quota"] == {"limit": 0, "unit": "cores", "reason": ""}
        assert tpuctl("up", "v3-8", "--zone", ZONE, "--yes").code == 6

    def test_zones_that_do_not_answer_or_are_forbidden_are_named_and_the_catalogue_stands_in(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        simulator.faults.add("zone-denied", zone=ZONE)
        simulator.faults.add("permission", method="ListAcceleratorTypes", zone="us-east1-d")
        result = tpuctl("zones", "v3-8", "--json")
        rows = {row["zone"]: row for row in result.json["zones"]}
        for zone in (ZONE, "us-east1-d"):
            assert rows[zone]["offered"] is None
            assert rows[zone]["sources"] == ["catalogue"]
            assert f"{zone} has not answered" in result.err
        assert set(result.json["silent"]) == {ZONE, "us-east1-d"}
        assert rows["us-central1-a"]["offered"] is True
        assert "unknown" in lines(tpuctl("zones", "v3-8"))[ZONE]

    def test_a_quota_that_cannot_be_read_is_unknown_with_the_reason(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        simulator.faults.add("api-off", api="cloudquotas")
        result = tpuctl("zones", "v3-8")
        assert lines(result)[ZONE][5:7] == ["unknown", "unknown"]
        assert "The quota is unknown: An API" in result.err
        assert "cloudquotas" in result.err

    def test_a_zone_that_does_not_exist_is_an_error(self, tpuctl: Tpuctl) -> None:
        result = tpuctl("zones", "--zone", "europe-west4-z")
        assert result.code == 2
        assert "There is no zone 'europe-west4-z' with TPUs" in result.err
        assert "Did you mean europe-west4-" in result.err


class TestTypes:
    def test_types_have_their_size_and_their_zones(self, tpuctl: Tpuctl) -> None:
        rows = lines(tpuctl("types"))
        assert rows["v3-32"][:6] == ["v3-32", "v3", "16", "32", "4", "4x4"]
        assert list(rows) == list(accelerators.catalogue())
        (row,) = [row for row in tpuctl("types", "--json").json["types"] if row["type"] == "v5litepod-8"]
        assert row["sources"] == ["API", "catalogue"]
        assert row["zones"] == sorted(accelerators.accelerator("v5litepod-8").zones)

    def test_one_zone_is_asked_alone(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        rows = lines(tpuctl("types", "--zone", ZONE))
        assert "v6e-8" in rows or "v3-8" in rows
        assert "v4-8" not in rows
        requests = simulator.events.find(kind="request", what="ListAcceleratorTypes")
        assert [event.resource.rpartition("/")[2] for event in requests] == [ZONE]

    def test_every_zone_is_asked_once(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        tpuctl("types")
        requests = simulator.events.find(kind="request", what="ListAcceleratorTypes")
        assert len(requests) == len(accelerators.zones())


class TestRuntimes:
    def test_runtimes_name_the_generations_they_are_for(self, tpuctl: Tpuctl) -> None:
        rows = {row["runtime"]: row for row in tpuctl("runtimes", "--json").json["runtimes"]}
        assert rows["tpu-ubuntu2204-base"]["default_of"] == ["v2", "v3", "v4"]
        assert rows["tpu-vm-tf-2.17.1-pjrt"]["default_of"] == []
        assert rows["v2-alpha-tpuv6e"]["zones"] == accelerators.zones()
        assert lines(tpuctl("runtimes"))["v2-alpha-tpuv6e"][-1] == "all"

    def test_a_silent_zone_is_named(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        simulator.faults.add("zone-denied", zone=ZONE)
        assert f"{ZONE} has not answered" in tpuctl("runtimes").err


class TestPrice:
    def test_a_price_has_its_source_and_date(self, tpuctl: Tpuctl) -> None:
        result = tpuctl("price", "v3-8", "--zone", ZONE)
        row = lines(result)["europe-west4"]
        assert row[1:5] == ["9.77", "USD", "2.93", "USD"]
        assert " ".join(row[5:]).startswith("made up by the simulator, 2")

    def test_every_command_writes_the_same_digits(self, tpuctl: Tpuctl) -> None:
        Path("tpuctl.toml").write_text("[prices]\n'v3-8' = 12.50\n")
        assert tpuctl("up", "v3-8", "--name", "n1", "--zone", ZONE, "--yes").code == 0
        answers = {
            "ls": tpuctl("ls", "--json").json["nodes"][0]["price_per_hour"],
            "describe": tpuctl("describe", "n1", "--json").json["nodes"][0]["price_per_hour"],
            "zones": tpuctl("zones", "v3-8", "--zone", ZONE, "--json").json["zones"][0]["price_per_hour"],
            "price": tpuctl("price", "v3-8", "--zone", ZONE, "--json").json["prices"][0]["on_demand"],
        }
        assert {name: price["amount"] for name, price in answers.items()} == dict.fromkeys(answers, "12.5")

    def test_several_slices_cost_as_much_more(self, tpuctl: Tpuctl) -> None:
        result = tpuctl("price", "v5litepod-16", "--zone", "us-west4-a", "--slices", "3", "--spot", "--json")
        (row,) = result.json["prices"]
        assert Decimal(row["spot"]["amount"]) == Decimal("1.25") * Decimal("0.3") * 48
        assert set(row) == {"region", "spot"}

    def test_every_region_is_listed_once(self, tpuctl: Tpuctl) -> None:
        regions = [row["region"] for row in tpuctl("price", "v2-8", "--json").json["prices"]]
        assert sorted(regions) == ["asia-east1", "europe-west4", "us-central1"]

    def test_the_configuration_comes_first(self, tpuctl: Tpuctl) -> None:
        Path("tpuctl.toml").write_text("[prices]\n'v3-8@europe-west4' = 1.5\n")
        row = lines(tpuctl("price", "v3-8", "--zone", ZONE))["europe-west4"]
        assert row[1:5] == ["1.50", "USD", "2.93", "USD"]
        assert "tpuctl.toml" in " ".join(row)

    def test_what_is_unknown_has_its_reason_and_what_to_do(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        simulator.faults.add("api-off", api="cloudbilling")
        result = tpuctl("price", "v3-8", "--zone", ZONE)
        assert lines(result)["europe-west4"][1:3] == ["unknown", "unknown"]
        assert "Unknown: An API that the price list needs is not enabled in the project." in result.err
        assert "Hint: Enable it" in result.err
        up = tpuctl("up", "v3-8")
        assert up.code == 10, "no command fails for a price"
        assert "unknown: An API that the price list needs" in up.err

    def test_nobody_without_credentials_gets_a_guess(
        self, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        result = tpuctl("price", "v3-8", "--target", "gcp", "--project", "my-project", "--zone", ZONE)
        assert lines(result)["europe-west4"][1:3] == ["unknown", "unknown"]
        assert "There are no Google Cloud credentials on this machine" in result.err


PRICE = "amount currency source as_of reason"
V3_8 = {"type": "v3-8", "generation": "v3", "chips": 4, "cores": 8, "hosts": 1, "topology": "2x2"}
BOTH = ["API", "catalogue"]


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


@pytest.mark.daily
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
