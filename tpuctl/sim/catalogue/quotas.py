"""Serves the Cloud Quotas API over REST: the limits that the simulated Cloud TPU API enforces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from aiohttp import web

from tpuctl.sim.catalogue.answers import Api, RefusedError, authorize, page_of
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.json_values import JsonObject

NAME = "cloudquotas.googleapis.com"
SERVICE = "tpu.googleapis.com"
PATH = "/v1/projects/{project}/locations/global/services/{service}/quotaInfos"
MOST = 500
UNLIMITED = -1


class Limits(Protocol):
    """What limits the nodes of a project."""

    def ids(self) -> Mapping[str, str]:
        """Return each quota's id, and its dimension: `zone` or `region`."""

    def places(self, dimension: str) -> Sequence[str]:
        """Return every zone or region."""

    def limit(self, project: str, place: str, quota: str) -> int | None:
        """Return how many cores may be used in a zone or region; None for any number."""


def application(limits: Limits, faults: FaultRegistry) -> web.Application:
    """Return the REST server."""
    api = _Quotas(limits, Api(NAME, faults))
    return api.api.application((PATH, api.list), (f"{PATH}/{{quota}}", api.get))


class _Quotas:
    """The methods of the API."""

    def __init__(self, limits: Limits, api: Api) -> None:
        self.api = api
        self._limits = limits

    async def list(self, request: web.Request) -> web.Response:
        project = self._admit(request)
        ids = self._limits.ids() if request.match_info["service"] == SERVICE else {}
        return page_of(request, "quotaInfos", [self._info(project, *row) for row in ids.items()], MOST)

    async def get(self, request: web.Request) -> web.Response:
        project, quota = self._admit(request), request.match_info["quota"]
        dimension = self._limits.ids().get(quota)
        if dimension is None or request.match_info["service"] != SERVICE:
            raise RefusedError(404, f"The quota {quota} was not found.")
        return web.json_response(self._info(project, quota, dimension))

    def _admit(self, request: web.Request) -> str:
        project = request.match_info["project"]
        self.api.require_enabled(project)
        authorize("cloudquotas.quotas.get", project)
        return project

    def _info(self, project: str, quota: str, dimension: str) -> JsonObject:
        return {
            "name": f"projects/{project}/locations/global/services/{SERVICE}/quotaInfos/{quota}",
            "quotaId": quota,
            "metric": f"{SERVICE}/{quota.lower()}",
            "service": SERVICE,
            "isPrecise": True,
            "containerType": "PROJECT",
            "dimensions": [dimension],
            "quotaDisplayName": quota,
            "metricUnit": "1",
            "dimensionsInfos": self._dimensions(project, quota, dimension),
            "isConcurrent": True,
        }

    def _dimensions(self, project: str, quota: str, dimension: str) -> Sequence[JsonObject]:
        """The limits of single places, then that of all others."""
        by_limit = defaultdict(list)
        for place in self._limits.places(dimension):
            by_limit[self._limits.limit(project, place, quota)].append(place)
        others = by_limit.pop(None, [])
        rows: list[JsonObject] = [
            {
                "dimensions": {dimension: place},
                "details": {"value": str(limit)},
                "applicableLocations": [place],
            }
            for limit, places in by_limit.items()
            for place in places
        ]
        rest: JsonObject = {"details": {"value": str(UNLIMITED)}, "applicableLocations": others}
        return [*rows, rest] if others else rows
