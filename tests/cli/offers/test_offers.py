"""The commands zones, types, runtimes and price: sources, silent zones, quota, and what is unknown."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

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
