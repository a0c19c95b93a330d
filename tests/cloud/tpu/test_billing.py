"""The price list: which rows are rates, what is kept for a day, and what happens when it cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import clock
from tpuctl.accelerators import accelerator
from tpuctl.catalogue.prices import RateList
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.cloud.rest import RestApi
from tpuctl.cloud.tpu import billing
from tpuctl.config import load
from tpuctl.config.files import state_folder
from tpuctl.errors import ConfigError, DeadlineError

MADE_UP = "made up by the simulator"


def no_api() -> RestApi:
    raise AssertionError("nobody should be asked")


def sku(description: str, usage: str = "OnDemand", units: Any = "1", nanos: int = 0, **fields: Any) -> Any:
    expression = {
        "usageUnit": fields.get("unit", "h"),
        "tieredRates": [{"unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos}}],
    }
    document = {
        "category": {"resourceGroup": fields.get("group", "TPU"), "usageType": usage},
        "description": description,
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"pricingExpression": expression}],
    }
    return msgspec.convert(document, billing._Sku)


@pytest.mark.parametrize(
    ("row", "generation", "spot", "slices", "amount"),
    [
        (sku("TPU-v2 Accelerator USA", units="4", nanos=500_000_000), "v2", False, False, "1.125"),
        (sku("Tpu-v3 Pod Netherlands", units="8"), "v3", False, True, "2"),
        (sku("Preemptible Tpu-v3 Pod Netherlands", units="8"), "v3", True, True, "2"),
        (sku("Tpu-v4 Pod Oklahoma", units="12"), "v4", False, None, "3"),
        (sku("TpuV5e running in Columbus", nanos=200_000_000), "v5e", False, None, "1.2"),
        (sku("TpuV5p attached to Spot Preemptible VMs", usage="Preemptible"), "v5p", True, None, "1"),
        (sku("TpuV6e running in Ohio", units="2", nanos=700_000_000), "v6e", False, None, "2.7"),
        (sku("TpuV6e running in Ohio", usage="Preemptible"), "v6e", True, None, "1"),
        (sku("TpuV6e running on Spot machines"), "v6e", True, None, "1"),
    ],
)
def test_a_row_is_the_rate_of_a_chip(
    row: Any, generation: str, spot: bool, slices: bool | None, amount: str
) -> None:
    rate = billing._rate(row)
    assert rate is not None
    assert (rate.generation, rate.spot, rate.slices) == (generation, spot, slices)
    assert rate.amount == Decimal(amount)
    assert rate.regions == ("us-central1",)


def test_an_amount_without_units_is_below_one() -> None:
    """Messages in JSON leave out what is 0."""
    assert msgspec.convert({"currencyCode": "USD", "nanos": 200_000_000}, billing._Money).amount == Decimal(
        "0.2"
    )


@pytest.mark.parametrize(
    "row",
    [
        sku("Reserved TpuV5e running in Columbus"),
        sku("DWS Defined Duration TpuV6e running in Ohio"),
        sku("DWS Calendar Mode TpuV5p"),
        sku("Commitment v1: TpuV5p for 1 Year", usage="Commit1Yr"),
        sku("TpuV5e running in Columbus", group="GPU"),
        sku("TpuV5e running in Columbus", unit="mo"),
        sku("TpuV5e running in Columbus", units="0"),
        sku("TpuV5e running in Columbus", units="-1"),
        sku("TpuV5e running in Columbus", units="many"),
        sku("TpuV5e running in Columbus", units="\u00b2"),
        sku("Network of TPUs"),
        msgspec.structs.replace(sku("TpuV5e"), pricing_info=()),
    ],
    ids=lambda row: row.description,
)
def test_other_rows_are_no_rates(row: Any) -> None:
    assert billing._rate(row) is None


class TestReading:
    @pytest.mark.parametrize(
        ("name", "zone", "spot", "amount"),
        [
            ("v3-8", "us-central1-a", False, "8.88"),
            ("v3-8", "us-central1-a", True, "2.664"),
            ("v3-32", "us-east1-d", False, "31.968"),
            ("v3-8", "europe-west4-a", False, "9.768"),
            ("v4-8", "us-central2-b", False, "11.988"),
            ("v5litepod-16", "us-west4-a", False, "20.00"),
            ("v6e-8", "us-east5-b", True, "6.600"),
        ],
    )
    def test_the_whole_list_is_read_page_by_page(
        self, cloud: Cloud, name: str, zone: str, spot: bool, amount: str
    ) -> None:
        kind = accelerator(name)
        price = cloud.read_rates(kind.generation).price(kind, zone, spot=spot)
        assert price.amount == Decimal(amount), price
        assert (price.currency, price.source) == ("USD", MADE_UP)

    def test_a_list_is_kept_for_a_day_for_its_user_alone(
        self, cloud: Cloud, simulator: RunningSimulator
    ) -> None:
        first = cloud.read_rates("v3")
        requests = len(simulator.events.find(service="billing"))
        assert requests > 0
        assert cloud.read_rates("v2") == first
        assert len(simulator.events.find(service="billing")) == requests
        (file,) = (state_folder() / "prices" / "sim").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("hours", [25, -1])
    def test_an_old_list_is_read_again(self, cloud: Cloud, simulator: RunningSimulator, hours: int) -> None:
        rates = cloud.read_rates("v3")
        (file,) = (state_folder() / "prices" / "sim").iterdir()
        old = replace(rates, read=clock.iso(clock.now() - timedelta(hours=hours)), rates=())
        file.write_bytes(msgspec.json.encode(old))
        assert cloud.read_rates("v3").rates == rates.rates

    @pytest.mark.parametrize(("days", "is_kept"), [(0, True), (30, True), (32, False), (-1, False)])
    def test_a_list_of_the_last_month_is_there_without_asking(
        self, cloud: Cloud, simulator: RunningSimulator, days: int, is_kept: bool
    ) -> None:
        assert cloud.kept_rates("v3") is None
        rates = cloud.read_rates("v3")
        requests = len(simulator.events.find(service="billing"))
        (file,) = (state_folder() / "prices" / "sim").iterdir()
        old = replace(rates, read=clock.iso(clock.now() - timedelta(days=days)))
        file.write_bytes(msgspec.json.encode(old))
        assert cloud.kept_rates("v3") == (old if is_kept else None)
        assert len(simulator.events.find(service="billing")) == requests

    @pytest.mark.parametrize(
        ("age", "is_kept"),
        [
            (timedelta(), True),
            (timedelta(days=31, microseconds=-1), True),
            (timedelta(days=31), False),
            (timedelta(microseconds=-1), False),
        ],
    )
    def test_a_list_counts_from_the_moment_of_its_reading_for_a_month(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: timedelta, is_kept: bool
    ) -> None:
        read = datetime(2026, 1, 1, tzinfo=UTC)
        catalog = billing.BillingCatalog(no_api, tmp_path, "here")
        rates = RateList((), "here", clock.iso(read))
        catalog._store(tmp_path / f"{billing.CLOUD_TPU}.json", rates)
        monkeypatch.setattr(clock, "now", lambda: read + age)
        assert catalog.kept("v3") == (rates if is_kept else None)
        assert catalog.kept("v5e") is None

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[" * 100_000, b'{"rates": [], "source": "x", "read": "never"}', b"\xff"]
    )
    def test_a_file_that_is_no_list_is_read_again(self, cloud: Cloud, content: bytes) -> None:
        cloud.read_rates("v3")
        (file,) = (state_folder() / "prices" / "sim").iterdir()
        file.write_bytes(content)
        assert cloud.read_rates("v3").rates

    def test_a_link_in_its_place_is_not_followed(self, cloud: Cloud, tmp_path: Path) -> None:
        rates = cloud.read_rates("v3")
        (file,) = (state_folder() / "prices" / "sim").iterdir()
        victim = tmp_path / "victim"
        victim.write_bytes(msgspec.json.encode(RateList((), rates.source, rates.read)))
        file.unlink()
        file.symlink_to(victim)
        assert cloud.read_rates("v3").rates == rates.rates
        assert victim.read_bytes() == msgspec.json.encode(RateList((), rates.source, rates.read))
        assert not file.is_symlink()

    def test_a_folder_that_cannot_be_written_keeps_nothing(self, cloud: Cloud) -> None:
        os.makedirs(state_folder(), exist_ok=True)
        (state_folder() / "prices").write_text("a file")
        assert cloud.read_rates("v3").rates

    def test_an_api_that_is_off_names_the_command_that_enables_it(
        self, cloud: Cloud, simulator: RunningSimulator
    ) -> None:
        simulator.faults.add("api-off", api="cloudbilling")
        with pytest.raises(ConfigError, match="not enabled") as refused:
            cloud.read_rates("v3")
        command, _, _ = refused.value.hint.partition(", or at ")
        assert command == "Enable it: gcloud services enable cloudbilling.googleapis.com"

    def test_an_answer_that_is_no_list_is_said(self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(billing, "_SkuPage", Impossible)
        with pytest.raises(DeadlineError, match="not what this version of tpuctl reads"):
            cloud.read_rates("v3")

    def test_without_credentials_the_price_is_unknown(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        google = connect(load({"project": "my-project", "target": "gcp"}))
        with pytest.raises(ConfigError, match="no Google Cloud credentials"):
            google.read_rates("v3")


class Impossible(msgspec.Struct):
    """A record that the API does not send."""

    missing: int
    next_page_token: str = ""


def test_up_shows_the_price_of_the_whole_request_before_it_asks(
    simulator: RunningSimulator, tpuctl: Callable[..., CommandResult]
) -> None:
    result = tpuctl("up", "v3-8")
    assert result.code == 10
    today = clock.iso(clock.now())[:10]
    assert f"9.77 USD ({MADE_UP}, {today})" in result.err, result.err
