"""What the simulated catalogues answer: pages of lists, quotas whole, refusals, an API that is off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import requests
from aiohttp import web

from tests.event_loops.thread import LoopThread
from tpuctl.sim.catalogue import billing, quotas
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import Binding, Policies
from tpuctl.sim.token_server import project_number

ADA = "user:ada@example.com"
ROLE = "projects/acme/roles/custom"
TPU = "services/E000-3F24-B8AA"
QUOTAS = "v1/projects/acme/locations/global/services/tpu.googleapis.com/quotaInfos"


class Limits:
    """Quotas of two zones and one region."""

    def ids(self) -> dict[str, str]:
        return {"InZone": "zone", "InRegion": "region"}

    def places(self, dimension: str) -> list[str]:
        return ["us-central1-a", "us-central1-b"] if dimension == "zone" else ["us-central1"]

    def limit(self, project: str, place: str, quota: str) -> int | None:
        return 8 if place == "us-central1-a" else None


class Catalogues:
    """Both APIs, without the rest of the simulator."""

    def __init__(self) -> None:
        self.faults = FaultRegistry()
        self.caller: Caller | None = None
        """Who calls, where roles are enforced."""
        self._thread = LoopThread()
        self._http = requests.Session()
        self._http.trust_env = False
        self._runners: list[web.AppRunner] = []
        applications = (billing.application(self.faults, "acme"), quotas.application(Limits(), self.faults))
        self.billing, self.quotas = self._thread.start(self._serve(*applications))

    def __call__(self, url: str, *, status: int = 200, method: str = "GET") -> Any:
        answer = self._http.request(method, url, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json() if status == 200 else answer.json()["error"]

    def close(self) -> None:
        self._thread.finish(self._stop())
        self._http.close()

    @web.middleware
    async def _enter(self, request: web.Request, handler: Any) -> web.StreamResponse:
        set_caller(self.caller)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _serve(self, *applications: web.Application) -> list[str]:
        addresses = []
        for application in applications:
            application.middlewares.append(self._enter)
            runner = web.AppRunner(application)
            self._runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        return addresses

    async def _stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()


@pytest.fixture
def catalogues() -> Iterator[Catalogues]:
    with closing(Catalogues()) as served:
        yield served


def test_services(catalogues: Catalogues) -> None:
    names = {TPU: "Cloud TPU", "services/6F81-5844-456A": "Compute Engine"}
    assert catalogues(f"{catalogues.billing}/v1/services") == {
        "services": [
            {
                "name": name,
                "serviceId": name.partition("/")[2],
                "displayName": shown,
                "businessEntityName": "businessEntities/GCP",
            }
            for name, shown in names.items()
        ],
        "nextPageToken": "",
    }


@pytest.mark.parametrize(
    ("size", "first"), [("", 40), ("0", 40), ("1", 1), ("39", 39), ("40", 40), ("41", 40)]
)
def test_a_page_has_up_to_forty_skus(catalogues: Catalogues, size: str, first: int) -> None:
    url = f"{catalogues.billing}/v1/services/6F81-5844-456A/skus"
    page = catalogues(f"{url}?pageSize={size}")
    assert len(page["skus"]) == first
    following = catalogues(f"{url}?pageSize=40&pageToken={page['nextPageToken']}")
    every = (
        catalogues(url)["skus"] + catalogues(f"{url}?pageToken={catalogues(url)['nextPageToken']}")["skus"]
    )
    assert following["skus"] == every[first : first + 40]


def test_a_page_beyond_the_end_is_empty(catalogues: Catalogues) -> None:
    url = f"{catalogues.billing}/v1/services/6F81-5844-456A/skus"
    token, pages = "", 0
    while True:
        page = catalogues(f"{url}?pageToken={token}")
        pages += 1
        if not page["nextPageToken"]:
            break
        token = page["nextPageToken"]
    assert pages > 1
    assert catalogues(f"{url}?pageToken=OTk5OTk5") == {"nextPageToken": ""}


@pytest.mark.parametrize(
    ("query", "status", "state", "message"),
    [
        ("pageSize=x", 400, "INVALID_ARGUMENT", "Invalid value at 'pageSize' (TYPE_INT32), \"x\""),
        ("pageSize=-1", 400, "INVALID_ARGUMENT", "Invalid value at 'pageSize' (TYPE_INT32), \"-1\""),
        ("pageToken=!", 400, "INVALID_ARGUMENT", "The page token is invalid."),
        ("currencyCode=EUR", 400, "INVALID_ARGUMENT", "The simulator's prices are in USD alone, not in EUR."),
    ],
)
def test_a_request_that_makes_no_sense(
    catalogues: Catalogues, query: str, status: int, state: str, message: str
) -> None:
    error = catalogues(f"{catalogues.billing}/v1/{TPU}/skus?{query}", status=status)
    assert error == {"code": status, "message": message, "status": state}
    assert "skus" in catalogues(f"{catalogues.billing}/v1/{TPU}/skus?currencyCode=USD")


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "v1/services/0/skus", "Requested entity was not found: services/0"),
        ("GET", "v2/services", "The simulator has no GET /v2/services"),
        ("POST", "v1/services", "The simulator has no POST /v1/services"),
    ],
)
def test_what_is_not_there(catalogues: Catalogues, method: str, path: str, message: str) -> None:
    error = catalogues(f"{catalogues.billing}/{path}", method=method, status=404)
    assert error == {"code": 404, "message": message, "status": "NOT_FOUND"}


def quota(name: str, dimension: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": f"{QUOTAS.removeprefix('v1/')}/{name}",
        "quotaId": name,
        "metric": f"tpu.googleapis.com/{name.lower()}",
        "service": "tpu.googleapis.com",
        "isPrecise": True,
        "containerType": "PROJECT",
        "dimensions": [dimension],
        "quotaDisplayName": name,
        "metricUnit": "1",
        "dimensionsInfos": rows,
        "isConcurrent": True,
    }


def test_quotas(catalogues: Catalogues) -> None:
    """https://cloud.google.com/docs/quotas/reference/rest/v1/folders.locations.services.quotaInfos"""
    limited = {
        "dimensions": {"zone": "us-central1-a"},
        "details": {"value": "8"},
        "applicableLocations": ["us-central1-a"],
    }
    others = {"details": {"value": "-1"}, "applicableLocations": ["us-central1-b"]}
    everywhere = {"details": {"value": "-1"}, "applicableLocations": ["us-central1"]}
    listed = [quota("InZone", "zone", [limited, others]), quota("InRegion", "region", [everywhere])]
    assert catalogues(f"{catalogues.quotas}/{QUOTAS}") == {"quotaInfos": listed, "nextPageToken": ""}
    assert catalogues(f"{catalogues.quotas}/{QUOTAS}/InZone") == listed[0]
    first = catalogues(f"{catalogues.quotas}/{QUOTAS}?pageSize=1")
    assert first["quotaInfos"] == listed[:1]
    error = catalogues(f"{catalogues.quotas}/{QUOTAS}/Other", status=404)
    assert error["message"] == "The quota Other was not found."
    compute = QUOTAS.replace("tpu.", "compute.")
    assert catalogues(f"{catalogues.quotas}/{compute}") == {"nextPageToken": ""}
    catalogues(f"{catalogues.quotas}/{compute}/InZone", status=404)


def test_a_page_has_up_to_500_quotas(catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "ids", lambda _: {f"Quota{number}": "region" for number in range(501)})
    for options in ("", "?pageSize=501"):
        first = catalogues(f"{catalogues.quotas}/{QUOTAS}{options}")
        assert len(first["quotaInfos"]) == 500
        rest = catalogues(f"{catalogues.quotas}/{QUOTAS}?pageToken={first['nextPageToken']}")
        assert [info["quotaId"] for info in rest["quotaInfos"]] == ["Quota500"]


@pytest.mark.parametrize("path", [QUOTAS, f"{QUOTAS}/InZone"])
def test_quotas_need_a_permission(catalogues: Catalogues, path: str) -> None:
    def called(permission: str, member: str = ADA) -> tuple[int, str]:
        policies = Policies(roles={ROLE: (permission,)})
        policies.projects["acme"].append(Binding(ROLE, (ADA,)))
        catalogues.caller = Caller(member, Access(policies, lambda _: None))
        with requests.Session() as http:
            http.trust_env = False
            answer = http.get(f"{catalogues.quotas}/{path}", timeout=60)
        error = answer.json().get("error", {})
        return answer.status_code, error.get("status", "")

    assert called("cloudquotas.quotas.get") == (200, "")
    assert called("cloudquotas.quotas.update") == (403, "PERMISSION_DENIED")
    assert called("cloudquotas.quotas.get", member="") == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("short", ["cloudbilling", "cloudquotas"])
def test_an_api_that_is_off(catalogues: Catalogues, short: str) -> None:
    place = {
        "cloudbilling": f"{catalogues.billing}/v1/services",
        "cloudquotas": f"{catalogues.quotas}/{QUOTAS}",
    }
    catalogues.faults.add("api-off", api=short, project="acme")
    error = catalogues(place.pop(short), status=403)
    number, service = project_number("acme"), f"{short}.googleapis.com"
    page = f"https://console.developers.google.com/apis/api/{service}/overview?project={number}"
    assert error == {
        "code": 403,
        "message": f"{service} has not been used in project {number} before or it is disabled. Enable it by "
        f"visiting {page} then retry. If you enabled this API recently, wait a few minutes for the action to "
        "propagate to our systems and retry.",
        "status": "PERMISSION_DENIED",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "SERVICE_DISABLED",
                "domain": "googleapis.com",
                "metadata": {"service": service, "consumer": f"projects/{number}"},
            }
        ],
    }
    (other,) = place.values()
    catalogues(other)
