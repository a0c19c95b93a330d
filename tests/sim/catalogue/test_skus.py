"""The made-up price list: which SKUs there are, in which service, and what each costs."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from tpuctl import accelerators
from tpuctl.sim.catalogue.billing import skus

TPU, COMPUTE = "E000-3F24-B8AA", "6F81-5844-456A"
RESERVED = ("Reserved", "DWS Calendar Mode", "DWS Defined Duration")


def price(sku: Any) -> Decimal:
    (rate,) = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    return int(rate["unitPrice"]["units"]) + Decimal(rate["unitPrice"]["nanos"]) / 10**9


@pytest.mark.parametrize(
    ("service", "description", "usage", "region", "amount"),
    [
        # v2 to v4: an hour of a device of four chips; a slice costs nine tenths, a preemptible one three
        (TPU, "Tpu-v2 Accelerator us-central1 (made up)", "OnDemand", "us-central1", "4.44"),
        (TPU, "Tpu-v2 Pod us-central1 (made up)", "OnDemand", "us-central1", "3.996"),
        (TPU, "Preemptible Tpu-v2 Accelerator us-central1 (made up)", "OnDemand", "us-central1", "1.332"),
        (TPU, "Preemptible Tpu-v2 Pod us-central1 (made up)", "OnDemand", "us-central1", "1.1988"),
        (TPU, "Tpu-v3 Accelerator europe-west4 (made up)", "OnDemand", "europe-west4", "9.768"),
        (TPU, "Tpu-v2 Accelerator asia-east1 (made up)", "OnDemand", "asia-east1", "5.328"),
        (TPU, "Tpu-v4 Pod us-central2 (made up)", "OnDemand", "us-central2", "11.988"),
        # later generations: an hour of a chip
        (COMPUTE, "TpuV5e running in us-central1 (made up)", "OnDemand", "us-central1", "1.25"),
        (COMPUTE, "TpuV5p running in us-east5 (made up)", "OnDemand", "us-east5", "4.25"),
        (COMPUTE, "TpuV6e running in asia-northeast1 (made up)", "OnDemand", "asia-northeast1", "3.3"),
        (
            COMPUTE,
            "TpuV6e attached to Spot Preemptible VMs running in us-east5 (made up)",
            "Preemptible",
            "us-east5",
            "0.825",
        ),
        *(
            (COMPUTE, f"{kind} TpuV5e running in us-west4 (made up)", "OnDemand", "us-west4", "0.75")
            for kind in RESERVED
        ),
        (
            COMPUTE,
            "Commitment v1: TpuV5e for 1 Year running in us-west4 (made up)",
            "Commit1Yr",
            "us-west4",
            "0.75",
        ),
    ],
)
def test_what_an_hour_costs(service: str, description: str, usage: str, region: str, amount: str) -> None:
    (sku,) = (sku for sku in skus(service) if sku["description"] == description)
    category: Any = sku["category"]
    assert (category["usageType"], sku["serviceRegions"]) == (usage, [region])
    assert price(sku) == Decimal(amount)


def test_a_sku_has_the_form_of_googles() -> None:
    """https://cloud.google.com/billing/docs/reference/rest/v1/services.skus"""
    sku: Any = next(sku for sku in skus(TPU) if "Tpu-v2 Pod us-central1" in str(sku["description"]))
    (pricing,) = sku.pop("pricingInfo")
    identifier = sku.pop("skuId")
    assert [len(part) for part in identifier.split("-")] == [4, 4, 4]
    assert identifier == identifier.upper()
    assert sku == {
        "name": f"services/{TPU}/skus/{identifier}",
        "description": sku["description"],
        "category": {
            "serviceDisplayName": "Cloud TPU",
            "resourceFamily": "Compute",
            "resourceGroup": "TPU",
            "usageType": "OnDemand",
        },
        "serviceRegions": ["us-central1"],
        "serviceProviderName": "tpuctl simulator (made up)",
        "geoTaxonomy": {"type": "REGIONAL", "regions": ["us-central1"]},
    }
    assert (pricing["summary"], pricing["currencyConversionRate"]) == ("", 1)
    assert pricing["effectiveTime"] == "2026-01-01T08:00:00Z"


def test_other_machines_are_in_the_list_too_as_at_google() -> None:
    others = [sku for sku in skus(COMPUTE) if "Tpu" not in str(sku["description"])]
    (core,) = others
    assert core["category"] == {
        "serviceDisplayName": "Compute Engine",
        "resourceFamily": "Compute",
        "resourceGroup": "N1Standard",
        "usageType": "OnDemand",
    }


def test_every_region_of_a_generation_has_its_prices() -> None:
    kinds = accelerators.catalogue().values()
    regions = {
        generation: {
            accelerators.region(zone)
            for kind in kinds
            if kind.generation == generation
            for zone in kind.zones
        }
        for generation in ("v2", "v3", "v4", "v5e", "v5p", "v6e")
    }
    listed = [(sku["description"], sku["serviceRegions"]) for sku in (*skus(TPU), *skus(COMPUTE))]
    counts = Counter(
        (generation, region)
        for description, (region,) in listed
        for generation in regions
        if f"tpu{generation}" in str(description).lower().replace("-", "")
    )
    each = {"v2": 4, "v3": 4, "v4": 2, "v5e": 6, "v5p": 6, "v6e": 6}
    assert counts == {
        (generation, region): each[generation] for generation in regions for region in regions[generation]
    }
