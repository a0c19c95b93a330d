"""Serves the Cloud Billing Catalog over REST: services and their SKUs, with made-up prices."""

from __future__ import annotations

from aiohttp import web

from tpuctl.sim.catalogue.answers import Api, RefusedError, page_of
from tpuctl.sim.catalogue.skus import SERVICES, skus
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.json_values import JsonObject

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
