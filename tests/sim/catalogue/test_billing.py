"""The simulated Cloud Billing Catalog as Google's own client sees it, and Cloud Quotas over plain REST.

The made-up price list: which SKUs there are, in which service, and what each costs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from typing import Any

import pytest
import requests
from googleapiclient import discovery
from googleapiclient.errors import HttpError
from httplib2 import Http

from tests.running_simulator import RunningSimulator
from tpuctl import accelerators
from tpuctl.sim.catalogue.billing import skus

TPU_SERVICE = "services/E000-3F24-B8AA"
COMPUTE_SERVICE = "services/6F81-5844-456A"
QUOTAS = "projects/sim-project/locations/global/services/tpu.googleapis.com"
V3 = "TPUV3sPerProjectPerZoneForTPUAPI"
ZONE = "europe-west4-a"

UNMODIFIED = """
import google.auth, google.auth.transport.requests
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
session = google.auth.transport.requests.AuthorizedSession(credentials)
prices = session.get("https://cloudbilling.googleapis.com/v1/services").json()
quotas = f"https://cloudquotas.googleapis.com/v1/projects/{project}/locations/global/services/tpu.googleapis.com"
print([service["displayName"] for service in prices["services"]])
print(session.get(f"{quotas}/quotaInfos/TPUV3sPerProjectPerZoneForTPUAPI").json()["dimensions"])
"""


class Google:
    """Google's own client of the Billing Catalog, by its own description of the API; quotas by GET."""

    def __init__(self, simulator: RunningSimulator, clients: ExitStack) -> None:
        endpoints = simulator.simulator.endpoints
        http = clients.enter_context(closing(Http(proxy_info=None)))
        options = {"api_endpoint": endpoints["billing_rest"]}
        self.billing = discovery.build(
            "cloudbilling", "v1", http=http, client_options=options, cache_discovery=False
        )
        self._quotas = endpoints["quota_rest"]

    def skus(self, service: str, **options: Any) -> list[dict[str, Any]]:
        """Return every SKU of a service, page by page."""
        method, listed = self.billing.services().skus(), []
        request = method.list(parent=service, **options)
        while request is not None:
            response = request.execute()
            listed += response["skus"]
            request = method.list_next(request, response)
        return listed

    def quotas(self, path: str, *, status: int = 200) -> Any:
        """Return what a path of the Cloud Quotas API answers, or its error if that is the `status`."""
        response = requests.get(f"{self._quotas}/v1/{path}", timeout=60)
        assert response.status_code == status, response.text
        return response.json()

    def limits(self, quota: str) -> dict[str, str]:
        """Return the limit of each place of a quota."""
        return {
            place: row["details"]["value"]
            for row in self.quotas(f"{QUOTAS}/quotaInfos/{quota}")["dimensionsInfos"]
            for place in row["applicableLocations"]
        }


@pytest.fixture
def google(simulator: RunningSimulator) -> Iterator[Google]:
    with ExitStack() as clients:
        yield Google(simulator, clients)


def test_services_and_their_prices_say_that_they_are_made_up(google: Google) -> None:
    services = google.billing.services().list().execute()["services"]
    assert {service["name"]: service["displayName"] for service in services} == {
        TPU_SERVICE: "Cloud TPU",
        COMPUTE_SERVICE: "Compute Engine",
    }
    for service in (TPU_SERVICE, COMPUTE_SERVICE):
        skus = google.skus(service)
        assert {sku["serviceProviderName"] for sku in skus} == {"tpuctl simulator (made up)"}
        assert all("(made up)" in sku["description"] for sku in skus)
        assert len({sku["skuId"] for sku in skus}) == len(skus)


def test_a_list_of_prices_has_several_pages(google: Google) -> None:
    assert google.skus(COMPUTE_SERVICE, pageSize=7) == google.skus(COMPUTE_SERVICE)
    first = google.billing.services().skus().list(parent=COMPUTE_SERVICE).execute()
    assert len(first["skus"]) < len(google.skus(COMPUTE_SERVICE))


def test_a_price_is_for_an_hour_as_google_writes_it(google: Google) -> None:
    """The units of published TPU SKUs: https://cloud.google.com/billing/docs/reference/rest/v1/services.skus."""
    for sku in google.skus(TPU_SERVICE):
        expression = sku["pricingInfo"][0]["pricingExpression"]
        (rate,) = expression.pop("tieredRates")
        assert (rate["startUsageAmount"], rate["unitPrice"]["currencyCode"]) == (0, "USD")
        assert expression == {
            "usageUnit": "h",
            "usageUnitDescription": "hour",
            "displayQuantity": 1,
            "baseUnit": "s",
            "baseUnitDescription": "second",
            "baseUnitConversionFactor": 3600,
        }


@pytest.mark.parametrize("options", [{"pageToken": "!"}, {"currencyCode": "EUR"}])
def test_a_malformed_request_is_refused(google: Google, options: dict[str, str]) -> None:
    with pytest.raises(HttpError) as refused:
        google.skus(TPU_SERVICE, **options)
    assert refused.value.status_code == 400


def test_an_unknown_service_has_no_prices(google: Google) -> None:
    with pytest.raises(HttpError) as refused:
        google.skus("services/0000-0000-0000")
    assert refused.value.status_code == 404


def test_a_quota_is_unlimited_until_somebody_limits_it(google: Google, simulator: RunningSimulator) -> None:
    assert set(google.limits(V3).values()) == {"-1"}
    simulator.world.capacity.quotas.limits["sim-project", ZONE, V3] = 8
    assert google.limits(V3)[ZONE] == "8"
    assert google.limits(V3)["us-east1-d"] == "-1"
    ids = {info["quotaId"] for info in google.quotas(f"{QUOTAS}/quotaInfos")["quotaInfos"]}
    assert {V3, "TPUV6EPreemptiblePerProjectPerZoneForTPUAPI", "TPUV2sPodPerProjectPerRegionForTPUAPI"} <= ids


def test_a_fault_that_limits_creates_is_in_the_quota_too(google: Google, simulator: RunningSimulator) -> None:
    simulator.faults.add("quota", zone=ZONE, limit=0)
    assert google.limits(V3)[ZONE] == "0"
    assert google.limits("TPUV3sPerProjectPerRegionForTPUAPI")["europe-west4"] == "-1"
    simulator.faults.clear()
    simulator.faults.add("quota", zone=ZONE, type="v3-8", limit=0)
    assert google.limits(V3)[ZONE] == "-1", "that is no quota: it limits creates of one type alone"


def test_a_quota_or_a_service_that_does_not_exist(google: Google) -> None:
    assert google.quotas(f"{QUOTAS}/quotaInfos/TPUV99", status=404)["error"]["status"] == "NOT_FOUND"
    assert "quotaInfos" not in google.quotas(f"{QUOTAS.replace('tpu.', 'compute.')}/quotaInfos")
    google.quotas(f"{QUOTAS}/quotaInfos?pageToken=%21", status=400)


def test_an_api_that_is_off_says_how_to_enable_it(google: Google, simulator: RunningSimulator) -> None:
    simulator.faults.add("api-off", api="cloudbilling")
    with pytest.raises(HttpError) as refused:
        google.skus(TPU_SERVICE)
    assert refused.value.status_code == 403
    assert refused.value.error_details[0]["reason"] == "SERVICE_DISABLED"
    assert google.limits(V3), "the other one stays"
    simulator.faults.add("api-off", api="cloudquotas")
    error = google.quotas(f"{QUOTAS}/quotaInfos", status=403)["error"]
    assert error["details"][0]["metadata"]["service"] == "cloudquotas.googleapis.com"


def test_programs_that_know_nothing_of_the_simulator_reach_both(simulator: RunningSimulator) -> None:
    environment = {**os.environ, **simulator.simulator.endpoints["environment"]}
    command = [sys.executable, "-c", UNMODIFIED]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert child.stdout.splitlines() == ["['Cloud TPU', 'Compute Engine']", "['zone']"], child.stderr


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
