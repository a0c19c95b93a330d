"""What the live API has and Google's client for Python has not: over REST, as gcloud and curl use it."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import tpu_v2

from tests.sim.tpu.api import POLLING, Api
from tests.sim.tpu.clients.test_rest import ZONE, ready_node

PARENT = ZONE.removeprefix("/")
RUNTIME = "v2-alpha-tpuv5-lite"


@pytest.fixture
def session() -> AuthorizedSession:
    """Google's session for REST by hand."""
    opened = AuthorizedSession(AnonymousCredentials())
    opened.trust_env = False
    return opened


def flex_start(
    type_name: str = "v5litepod-4", duration: str | None = "3600s", **fields: Any
) -> dict[str, Any]:
    node = {"acceleratorType": type_name, "runtimeVersion": RUNTIME}
    spec = {"parent": PARENT, "nodeId": "one", "node": node}
    run = {"runDuration": {"maxRunDuration": duration}} if duration else {}
    return {"tpu": {"nodeSpec": [spec]}, "provisioningModel": "FLEX_START", **run, **fields}


def queue(session: AuthorizedSession, api: Api, body: dict[str, Any]) -> requests.Response:
    url = f"{api.rest_address}/v2alpha1/{PARENT}/queuedResources?queuedResourceId=q"
    return session.post(url, json=body, timeout=60)


class TestUpcomingMaintenance:
    def test_v2_shows_it_with_its_node(self, api: Api, session: AuthorizedSession) -> None:
        assert "upcomingMaintenance" not in ready_node(api)
        address = f"{api.rest_address}/v2alpha1{ZONE}/nodes/one"
        operation = session.post(f"{address}:simulateMaintenanceEvent", json={"workerIds": ["0"]}, timeout=60)
        api.run(api.world.operations.wait(operation.json()["name"], 10))
        alpha = session.get(address, timeout=60).json()
        v2 = session.get(f"{api.rest_address}/v2{ZONE}/nodes/one", timeout=60).json()
        (listed,) = session.get(
            f"{api.rest_address}/v2/projects/rehearsal/locations/-/nodes", timeout=60
        ).json()["nodes"]
        announced = alpha["upcomingMaintenance"]
        assert v2["upcomingMaintenance"] == listed["upcomingMaintenance"] == announced
        assert announced["canReschedule"] is True
        assert announced["maintenanceStatus"] == "PENDING"
        assert announced["windowStartTime"] < announced["windowEndTime"] <= announced["latestWindowStartTime"]

    def test_googles_client_of_v2_skips_it(self, api: Api) -> None:
        ready_node(api)
        api.run(self._announce(api))
        with tpu_v2.TpuClient(
            transport="rest",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": api.rest_address},
        ) as client:
            assert client.get_node(name=f"{PARENT}/nodes/one").state == tpu_v2.Node.State.READY
            client.delete_node(name=f"{PARENT}/nodes/one").result(polling=POLLING)

    async def _announce(self, api: Api) -> None:
        operation = api.world.nodes.simulate_maintenance(f"{PARENT}/nodes/one", [])
        await api.world.operations.wait(operation.name, 10)


class TestFlexStart:
    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (flex_start(duration=None), "more than 0s and at most 604800s"),
            (flex_start(duration="0s"), "more than 0s"),
            (flex_start(duration="604801s"), "at most 604800s"),
            (flex_start(duration="soon"), "more than 0s"),
            (flex_start("v3-8"), "not available for v3-8"),
            (flex_start("v5p-8"), "not available for v5p-8"),
            (flex_start(spot={}), "cannot be combined with spot"),
            (flex_start(guaranteed={"reserved": True}), "cannot be combined with guaranteed"),
            (flex_start(reservationName="r"), "cannot be combined with reservationName"),
        ],
    )
    def test_what_is_not_offered_is_refused(
        self, api: Api, session: AuthorizedSession, body: dict[str, Any], reason: str
    ) -> None:
        answer = queue(session, api, body)
        assert answer.status_code == 400
        assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"
        assert reason in answer.json()["error"]["message"]
        assert api.world.idle()

    @pytest.mark.parametrize("type_name", ["v5litepod-4", "v6e-4"])
    def test_what_is_offered_is_not_simulated_and_says_so(
        self, api: Api, session: AuthorizedSession, type_name: str
    ) -> None:
        answer = queue(session, api, flex_start(type_name, "604800s"))
        assert answer.status_code == 501
        assert "provisioningModel FLEX_START" in answer.json()["error"]["message"]
        assert api.world.idle()

    def test_a_node_cannot_be_created_so_directly(self, api: Api, session: AuthorizedSession) -> None:
        body = {
            "acceleratorType": "v5litepod-4",
            "runtimeVersion": RUNTIME,
            "schedulingConfig": {"provisioningModel": "FLEX_START"},
        }
        url = f"{api.rest_address}/v2alpha1/{PARENT}/nodes?nodeId=one"
        answer = session.post(url, json=body, timeout=60)
        assert answer.status_code == 400
        assert "only available through queued resources" in answer.json()["error"]["message"]
        assert api.world.idle()
