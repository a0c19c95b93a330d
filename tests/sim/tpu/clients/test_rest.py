"""The REST API for any HTTP client: paths, parameters, Google's JSON."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import requests
from google.api_core import exceptions

from tests.sim.tpu.api import Api
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
