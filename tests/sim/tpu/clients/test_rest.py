"""The REST API for any HTTP client: paths, parameters, Google's JSON.

What the live API has and Google's client for Python has not: over REST, as gcloud and curl use it.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import tpu_v2

from tests.sim.tpu.api import POLLING, Api
from tpuctl.sim.faults import grpc_fault

ZONE = "/projects/rehearsal/locations/europe-west4-a"
BODY = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}


def create(api: Api, **fields: Any) -> requests.Response:
    return requests.post(f"{api.rest_address}/v2{ZONE}/nodes?nodeId=one", json={**BODY, **fields}, timeout=60)


def get(api: Api, path: str) -> requests.Response:
    return requests.get(f"{api.rest_address}{path}", timeout=60)


def ready_node(api: Api) -> dict[str, Any]:
    api.run(api.world.operations.wait(create(api).json()["name"], 10))
    return get(api, f"/v2{ZONE}/nodes/one").json()


def test_json_is_googles_names_as_text_numbers_of_64_bits_too(api: Api) -> None:
    operation = create(api).json()
    assert operation["metadata"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata"
    api.run(api.world.operations.wait(operation["name"], 10))
    node = get(api, f"/v2{ZONE}/nodes/one").json()
    assert node["state"] == "READY"
    assert isinstance(node["id"], str)
    assert node["networkEndpoints"] == [{"ipAddress": "127.77.0.1", "port": 8470}]
    ended = get(api, f"/v2/{operation['name']}").json()
    assert ended["response"] == {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", **node}


def test_an_error_is_googles_json(api: Api) -> None:
    answer = get(api, "/v2/projects/rehearsal/locations/mars/nodes")
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert error["details"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"


@pytest.mark.parametrize(
    "code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK], ids=str
)
def test_each_code_has_the_http_status_that_googles_own_client_has_for_it(
    api: Api, code: grpc.StatusCode
) -> None:
    api.faults.add(grpc_fault("tpu.GetNode", code.value[0], "injected"))
    answer = get(api, f"/v2{ZONE}/nodes/one")
    expected = exceptions.from_grpc_status(code, "").code or 500  # UNKNOWN and DATA_LOSS have no class there
    assert answer.status_code == answer.json()["error"]["code"] == expected
    assert answer.json()["error"]["status"] == code.name


@pytest.mark.parametrize("path", ["/", "/v2/nowhere", f"/v1{ZONE}/reservations", f"/v3{ZONE}/nodes"])
def test_an_unknown_path_is_not_found_in_json(api: Api, path: str) -> None:
    answer = get(api, path)
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "path",
    ["/projects/rehearsal/locations", ZONE, f"{ZONE}/acceleratorTypes", f"{ZONE}/acceleratorTypes/v3-8",
     f"{ZONE}/operations", "operation"],
)  # fmt: skip
def test_v1_has_the_methods_that_gcloud_calls_there(api: Api, path: str) -> None:
    operation = create(api).json()["name"]
    api.run(api.world.operations.wait(operation, 10))
    path = f"/{operation}" if path == "operation" else path
    answer = get(api, f"/v1{path}")
    assert answer.status_code == 200
    assert answer.json() == get(api, f"/v2{path}").json()


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "nodes"), ("PATCH", "nodes/one"), ("DELETE", "nodes/one"), ("POST", "nodes/one:stop"),
        ("GET", "queuedResources"),
        ("GET", "runtimeVersions"), ("GET", "runtimeVersions/tpu-ubuntu2204-base"),
        ("DELETE", "operations/ID"), ("POST", "operations/ID:cancel"), ("POST", ":generateServiceIdentity"),
    ],
)  # fmt: skip
def test_v1_has_no_other_method(api: Api, verb: str, path: str) -> None:
    """Beside those that read nodes, which have other fields there."""
    operation = create(api).json()["name"]
    api.run(api.world.operations.wait(operation, 10))
    path = path.replace("operations/ID", "operations/" + operation.rpartition("/")[2])
    at = path if path.startswith(":") else f"/{path}"
    answer = requests.request(verb, f"{api.rest_address}/v1{ZONE}{at}", json={}, timeout=60)
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")
    assert [node.state for node in api.world.nodes.all()] == ["READY"]


def test_a_field_that_the_api_lacks_is_refused_in_the_body_and_in_the_query(api: Api) -> None:
    assert create(api, colour="blue").status_code == 400
    answer = get(api, f"/v2{ZONE}/nodes?colour=blue")
    assert answer.status_code == 400
    assert 'Unknown name "colour"' in answer.json()["error"]["message"]
    assert get(api, f"/v2{ZONE}/nodes?pageSize=3&alt=json&prettyPrint=True&$trace=x").status_code == 200


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"metadata": 3}'])
def test_a_body_that_is_not_the_message_is_refused(api: Api, body: bytes) -> None:
    answer = requests.post(f"{api.rest_address}/v2{ZONE}/nodes?nodeId=one", data=body, timeout=60)
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("mask", ["networkConfig.enableExternalIps", "network_config.enable_external_ips"])
def test_a_mask_can_have_both_spellings(api: Api, mask: str) -> None:
    ready_node(api)
    answer = requests.patch(
        f"{api.rest_address}/v2{ZONE}/nodes/one?updateMask={mask}",
        json={"networkConfig": {"enableExternalIps": True}},
        timeout=60,
    )
    api.run(api.world.operations.wait(answer.json()["name"], 10))
    (node,) = api.world.nodes.all()
    assert node.external_ips


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
