"""Serves the Cloud Billing Catalog over REST: services and their SKUs, with made-up prices."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from decimal import Decimal
from functools import cache

from aiohttp import web

from tpuctl import accelerators
from tpuctl.sim.catalogue.answers import Api, RefusedError, page_of
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.json_values import JsonObject

CLOUD_TPU, COMPUTE_ENGINE = "E000-3F24-B8AA", "6F81-5844-456A"
SERVICES = {CLOUD_TPU: "Cloud TPU", COMPUTE_ENGINE: "Compute Engine"}
PROVIDER = "tpuctl simulator (made up)"
EFFECTIVE = "2026-01-01T08:00:00Z"
CHIP_HOURS = {
    # generation: made-up price of a chip for an hour, in the US
    "v2": Decimal("1.11"),
    "v3": Decimal("2.22"),
    "v4": Decimal("3.33"),
    "v5e": Decimal("1.25"),
    "v5p": Decimal("4.25"),
    "v6e": Decimal("2.75"),
}
CONTINENTS = {"us": Decimal(1), "europe": Decimal("1.1"), "asia": Decimal("1.2")}
SPOT, SLICE, RESERVED = Decimal("0.3"), Decimal("0.9"), Decimal("0.6")
CHIPS_OF_DEVICE = 4
BY_DEVICE = ("v2", "v3", "v4")
"""Generations whose SKUs are in the service Cloud TPU."""
NAME = "cloudbilling.googleapis.com"
MOST = 40
"""SKUs of a page; Google sends up to 5,000, and clients have to page there, too."""


def application(faults: FaultRegistry, project: str) -> web.Application:
    """Return the REST server; `project` is the one whose API it is, since requests name none."""
    api = _Catalog(Api(NAME, faults), project)
    return api.api.application(("/v1/services", api.services), ("/v1/services/{service}/skus", api.skus))


class _Catalog:
    """The methods of the API."""

    def __init__(self, api: Api, project: str) -> None:
        self.api = api
        self._project = project

    async def services(self, request: web.Request) -> web.Response:
        self.api.require_enabled(self._project)
        return page_of(request, "services", [_service(*row) for row in SERVICES.items()], MOST)

    async def skus(self, request: web.Request) -> web.Response:
        self.api.require_enabled(self._project)
        service, currency = request.match_info["service"], request.query.get("currencyCode", "USD")
        if service not in SERVICES:
            raise RefusedError(404, f"Requested entity was not found: services/{service}")
        if currency != "USD":
            raise RefusedError(400, f"The simulator's prices are in USD alone, not in {currency}.")
        return page_of(request, "skus", skus(service), MOST)


def _service(identifier: str, name: str) -> JsonObject:
    return {
        "name": f"services/{identifier}",
        "serviceId": identifier,
        "displayName": name,
        "businessEntityName": "businessEntities/GCP",
    }


# Makes up the price list of Cloud TPU: shaped as Google's, with amounts that nobody ever asked for.
#
# The shape is that of `services.skus.list`. v2 to v4 are SKUs of the service Cloud TPU, by the hour of four
# chips, with SKUs of their own for slices; later generations are SKUs of Compute Engine, by a chip's hour.
# Source: how SkyPilot's and dstack's fetchers of the catalogue read the real one.


@cache
def skus(service: str) -> tuple[JsonObject, ...]:
    """Return the SKUs of a service."""
    return tuple(_of_cloud_tpu() if service == CLOUD_TPU else _of_compute_engine())


def _of_cloud_tpu() -> Iterator[JsonObject]:
    for generation in BY_DEVICE:
        for region in _regions(generation):
            device = _price(generation, region) * CHIPS_OF_DEVICE
            kinds = [("Pod", SLICE)] if generation == "v4" else [("Accelerator", Decimal(1)), ("Pod", SLICE)]
            for kind, share in kinds:
                name = f"Tpu-{generation} {kind} {region} (made up)"
                yield _sku(CLOUD_TPU, name, "OnDemand", region, device * share)
                # Google's preemptible SKUs of this service have the usage type OnDemand, too.
                yield _sku(CLOUD_TPU, f"Preemptible {name}", "OnDemand", region, device * share * SPOT)


def _of_compute_engine() -> Iterator[JsonObject]:
    yield _sku(
        COMPUTE_ENGINE, "N1 Predefined Instance Core (made up)", "OnDemand", "us-central1", SPOT, "N1Standard"
    )
    for generation in CHIP_HOURS.keys() - {*BY_DEVICE}:
        name = f"Tpu{generation.capitalize()}"
        for region in _regions(generation):
            chip, place = _price(generation, region), f"running in {region} (made up)"
            yield _sku(COMPUTE_ENGINE, f"{name} {place}", "OnDemand", region, chip)
            spot = f"{name} attached to Spot Preemptible VMs {place}"
            yield _sku(COMPUTE_ENGINE, spot, "Preemptible", region, chip * SPOT)
            for kind in ("Reserved", "DWS Calendar Mode", "DWS Defined Duration"):
                yield _sku(COMPUTE_ENGINE, f"{kind} {name} {place}", "OnDemand", region, chip * RESERVED)
            commitment = f"Commitment v1: {name} for 1 Year {place}"
            yield _sku(COMPUTE_ENGINE, commitment, "Commit1Yr", region, chip * RESERVED)


def _regions(generation: str) -> list[str]:
    kinds = accelerators.catalogue().values()
    zones = {zone for kind in kinds if kind.generation == generation for zone in kind.zones}
    return sorted({accelerators.region(zone) for zone in zones})


def _price(generation: str, region: str) -> Decimal:
    return CHIP_HOURS[generation] * CONTINENTS.get(region.partition("-")[0], Decimal("1.3"))


def _sku(
    service: str, description: str, usage: str, region: str, price: Decimal, group: str = "TPU"
) -> JsonObject:
    digest = hashlib.sha256(description.encode()).hexdigest().upper()
    sku_id = "-".join((digest[:4], digest[4:8], digest[8:12]))
    return {
        "name": f"services/{service}/skus/{sku_id}",
        "skuId": sku_id,
        "description": description,
        "category": {
            "serviceDisplayName": SERVICES[service],
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": [region],
        "pricingInfo": [{"summary": "", "pricingExpression": _expression(price), **_TIMES}],
        "serviceProviderName": PROVIDER,
        "geoTaxonomy": {"type": "REGIONAL", "regions": [region]},
    }


_TIMES: JsonObject = {"currencyConversionRate": 1, "effectiveTime": EFFECTIVE}


def _expression(price: Decimal) -> JsonObject:
    units, fraction = divmod(price, 1)
    money: JsonObject = {"currencyCode": "USD", "units": str(units), "nanos": int(fraction * 10**9)}
    return {
        "usageUnit": "h",
        "displayQuantity": 1,
        "tieredRates": [{"startUsageAmount": 0, "unitPrice": money}],
        "usageUnitDescription": "hour",
        "baseUnit": "s",
        "baseUnitDescription": "second",
        "baseUnitConversionFactor": 3600,
    }
