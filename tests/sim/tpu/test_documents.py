"""The JSON documents of the Cloud TPU API, whole, in each of its versions."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.sim.tpu.api import Api
from tpuctl.sim.records import GuestAttribute
from tpuctl.sim.token_server import project_number
from tpuctl.sim.world import Reservation

ZONE = "projects/rehearsal/locations/us-central2-b"
NODE = f"{ZONE}/nodes/one"
SENT = {
    "acceleratorType": "v4-16",
    "runtimeVersion": "tpu-vm-tf-2.17.1-pod-pjrt",
    "description": "for tests",
    "labels": {"team": "vision"},
    "schedulingConfig": {"preemptible": True, "reserved": False},
    "networkConfig": {"network": "net", "enableExternalIps": True},
}
ADDRESSES = ("127.77.0.1", "127.77.0.2")


class Rest:
    """The API over plain HTTP."""

    def __init__(self, api: Api, http: requests.Session) -> None:
        self.api, self._http = api, http

    def __call__(self, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
        answer = self._http.request(method, f"{self.api.rest_address}/{path}", json=body, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()

    def ended(self, operation: dict[str, Any], version: str = "v2") -> Any:
        """Return an operation once it has ended."""
        self.api.run(self.api.world.operations.wait(operation["name"], 60))
        return self("GET", f"{version}/{operation['name']}")

    def created(self, version: str = "v2") -> dict[str, Any]:
        """Create the node and return it."""
        self.ended(self("POST", f"{version}/{ZONE}/nodes?nodeId=one", SENT), version)
        node: dict[str, Any] = self("GET", f"{version}/{NODE}")
        return node


@pytest.fixture
def rest(api: Api) -> Any:
    with requests.Session() as http:
        http.trust_env = False
        yield Rest(api, http)


@pytest.mark.parametrize(("version", "shown"), [("v2", "V2"), ("v2alpha1", "V2_ALPHA1")])
def test_a_node(rest: Rest, version: str, shown: str) -> None:
    node = rest.created(version)
    endpoints = [
        {"ipAddress": address, "port": 8470, "accessConfig": {"externalIp": address}} for address in ADDRESSES
    ]
    assert node["createTime"].endswith("Z")
    assert int(node["id"]) >= 1 << 61
    assert node == {
        "name": NODE,
        "description": "for tests",
        "acceleratorType": "v4-16",
        "acceleratorConfig": {"type": "V4", "topology": "2x2x2"},
        "state": "READY",
        "health": "HEALTHY",
        "runtimeVersion": "tpu-vm-tf-2.17.1-pod-pjrt",
        "networkConfig": {"network": "net", "enableExternalIps": True},
        "createTime": node["createTime"],
        "schedulingConfig": {"preemptible": True},
        "networkEndpoints": endpoints,
        "labels": {"team": "vision"},
        "id": node["id"],
        "apiVersion": shown,
    }
    assert rest("GET", f"{version}/{ZONE}/nodes") == {"nodes": [node]}


@pytest.mark.parametrize(
    ("query", "state"), [("$alt=json;enum-encoding=int", 2), ("$alt=json", "READY"), ("", "READY")]
)
def test_enums_are_numbers_for_googles_client(rest: Rest, query: str, state: object) -> None:
    rest.created()
    assert rest("GET", f"v2/{NODE}?{query}")["state"] == state


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_an_operation(rest: Rest, version: str) -> None:
    begun = rest("POST", f"{version}/{ZONE}/nodes?nodeId=one", SENT)
    ended = rest.ended(begun, version)
    node = rest("GET", f"{version}/{NODE}")
    package = f"type.googleapis.com/google.cloud.tpu.{version}"
    metadata = ended["metadata"]
    assert ended == {
        "name": begun["name"],
        "metadata": {
            "@type": f"{package}.OperationMetadata",
            "createTime": begun["metadata"]["createTime"],
            "endTime": metadata["endTime"],
            "target": NODE,
            "verb": "create",
            "apiVersion": version,
        },
        "done": True,
        "response": {"@type": f"{package}.Node", **node},
    }
    deleted = rest.ended(rest("DELETE", f"{version}/{NODE}"), version)
    assert deleted["metadata"]["verb"] == "delete"
    assert deleted["response"]["@type"] == "type.googleapis.com/google.protobuf.Empty"


def test_an_operation_that_fails(rest: Rest) -> None:
    rest.api.faults.add("failed-operation", code="INTERNAL", message="no", reason="R", metadata={"a": "b"})
    failed = rest.ended(rest("POST", f"v2/{ZONE}/nodes?nodeId=one", SENT))
    assert failed["error"] == {
        "code": 13,
        "message": "no",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "R",
                "domain": "googleapis.com",
                "metadata": {"a": "b"},
            }
        ],
    }
    assert "response" not in failed


def test_a_node_in_version_1(rest: Rest) -> None:
    """https://cloud.google.com/tpu/docs/reference/rest/v1/projects.locations.nodes"""
    node = rest.created()
    old = rest("GET", f"v1/{NODE}")
    assert old == {
        "name": NODE,
        "description": "for tests",
        "acceleratorType": "v4-16",
        "state": "READY",
        "health": "HEALTHY",
        "createTime": node["createTime"],
        "labels": {"team": "vision"},
        "tensorflowVersion": "tpu-vm-tf-2.17.1-pod-pjrt",
        "ipAddress": ADDRESSES[0],
        "port": "8470",
        "networkEndpoints": [{"ipAddress": address, "port": 8470} for address in ADDRESSES],
        "network": "net",
        "schedulingConfig": {"preemptible": True},
        "apiVersion": "V2_ALPHA1",
    }
    assert rest("GET", f"v1/{ZONE}/nodes") == {"nodes": [old], "unreachable": []}


def test_every_field_of_version_1_comes_from_version_2(rest: Rest) -> None:
    fields = {**SENT, "cidrBlock": "10.0.0.0/29", "schedulingConfig": {"reserved": True}}
    rest.api.world.capacity.reservations.add(Reservation(f"{ZONE}/reservations/r", "v4-8", 64))
    rest.ended(rest("POST", f"v2/{ZONE}/nodes?nodeId=one", fields))
    old = rest("GET", f"v1/{NODE}")
    assert (old["cidrBlock"], old["schedulingConfig"]) == ("10.0.0.0/29", {"reserved": True})
    bare = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    rest.ended(rest("POST", f"v2/{ZONE}/nodes?nodeId=two", bare))
    two = rest("GET", f"v1/{ZONE}/nodes/two")
    assert (two["network"], two["schedulingConfig"], "cidrBlock" in two) == ("default", {}, False)


def test_versions_of_tensorflow(rest: Rest) -> None:
    versions = ("2.15.0", "2.15.1", "2.16.1", "2.16.2", "2.17.0", "2.17.1", "2.18.0", "2.19.0")
    documents = [{"name": f"{ZONE}/tensorflowVersions/{version}", "version": version} for version in versions]
    assert rest("GET", f"v1/{ZONE}/tensorflowVersions") == {"tensorflowVersions": documents}
    assert rest("GET", f"v1/{ZONE}/tensorflowVersions/2.17.0") == documents[4]
    rest("GET", f"v1/{ZONE}/tensorflowVersions/2.17", status=404)


def test_the_description_of_version_1(rest: Rest) -> None:
    """https://developers.google.com/discovery/v1/reference/apis"""
    place = "projects/[^/]+/locations/[^/]+"

    def method(name: str, parameter: str, path: str, pattern: str, response: str) -> dict[str, Any]:
        described = {"location": "path", "pattern": pattern, "required": True, "type": "string"}
        return {
            "id": f"tpu.projects.locations.nodes.{name}",
            "httpMethod": "GET",
            "path": path,
            "parameters": {parameter: described},
            "parameterOrder": [parameter],
            "response": {"$ref": response},
        }

    methods = {
        "get": method("get", "name", "v1/{+name}", f"^{place}/nodes/[^/]+$", "Node"),
        "list": method("list", "parent", "v1/{+parent}/nodes", f"^{place}$", "Nodes"),
    }
    nodes = {"resources": {"nodes": {"methods": methods}}}
    assert rest("GET", "$discovery/rest?version=v1") == {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": "tpu:v1",
        "name": "tpu",
        "version": "v1",
        "rootUrl": "https://tpu.googleapis.com/",
        "servicePath": "",
        "baseUrl": "https://tpu.googleapis.com/",
        "batchPath": "batch",
        "auth": {"oauth2": {"scopes": {"https://www.googleapis.com/auth/cloud-platform": {}}}},
        "schemas": {"Node": {"id": "Node", "type": "object"}, "Nodes": {"id": "Nodes", "type": "object"}},
        "resources": {"projects": {"resources": {"locations": nodes}}},
    }


@pytest.mark.parametrize("query", ["", "?version=v2", "?version=v2alpha1"])
def test_the_description_of_later_versions(rest: Rest, query: str) -> None:
    version = query.partition("=")[2] or "v2"
    document = rest("GET", f"$discovery/rest{query}")
    schemas, resources = document.pop("schemas"), document.pop("resources")
    assert document == {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": f"tpu:{version}",
        "name": "tpu",
        "version": version,
        "protocol": "rest",
        "rootUrl": "https://tpu.googleapis.com/",
        "servicePath": "",
        "baseUrl": "https://tpu.googleapis.com/",
        "batchPath": "batch",
        "auth": {"oauth2": {"scopes": {"https://www.googleapis.com/auth/cloud-platform": {}}}},
    }
    methods = resources["projects"]["resources"]["locations"]["resources"]["nodes"]["methods"]
    assert methods["patch"] == {
        "id": "tpu.projects.locations.nodes.patch",
        "httpMethod": "PATCH",
        "path": f"{version}/{{+name}}",
        "parameters": {
            "name": {
                "location": "path",
                "pattern": "^projects/[^/]+/locations/[^/]+/nodes/[^/]+$",
                "required": True,
                "type": "string",
            },
            "updateMask": {"location": "query", "type": "string", "format": "google-fieldmask"},
        },
        "parameterOrder": ["name"],
        "response": {"$ref": "Operation"},
        "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "request": {"$ref": "Node"},
    }
    assert "request" not in methods["get"]
    assert schemas["ListNodesResponse"] == {
        "id": "ListNodesResponse",
        "type": "object",
        "properties": {
            "nodes": {"type": "array", "items": {"type": "object"}},
            "nextPageToken": {"type": "string"},
            "unreachable": {"type": "array", "items": {"type": "string"}},
        },
    }
    assert schemas["Operation"]["properties"]["done"] == {"type": "boolean"}
    assert "version=v9" in rest("GET", "$discovery/rest?version=v9", status=404)["error"]["message"]


def test_what_a_zone_offers(rest: Rest) -> None:
    kind = {
        "name": f"{ZONE}/acceleratorTypes/v4-16",
        "type": "v4-16",
        "acceleratorConfigs": [{"type": "V4", "topology": "2x2x2"}],
    }
    assert rest("GET", f"v2/{ZONE}/acceleratorTypes/v4-16") == kind
    assert rest("GET", f"v2/{ZONE}/acceleratorTypes?filter=type=v4-16") == {"acceleratorTypes": [kind]}
    runtime = {
        "name": f"{ZONE}/runtimeVersions/tpu-ubuntu2204-base",
        "version": "tpu-ubuntu2204-base",
    }
    assert rest("GET", f"v2/{ZONE}/runtimeVersions/tpu-ubuntu2204-base") == runtime
    location = {
        "name": ZONE,
        "locationId": "us-central2-b",
        "labels": {"cloud.googleapis.com/region": "us-central2"},
    }
    assert rest("GET", f"v2/{ZONE}") == location
    assert location in rest("GET", "v2/projects/rehearsal/locations")["locations"]
    identity = {"email": f"service-{project_number('rehearsal')}@cloud-tpu.iam.gserviceaccount.com"}
    assert rest("POST", f"v2/{ZONE}:generateServiceIdentity", {}) == {"identity": identity}


def test_a_reservation(rest: Rest) -> None:
    rest.api.world.capacity.reservations.add(Reservation(f"{ZONE}/reservations/r", "v4-8", 64, 0.5))
    assert rest("GET", f"v2alpha1/{ZONE}/reservations") == {
        "reservations": [
            {
                "name": f"{ZONE}/reservations/r",
                "standard": {
                    "size": 64,
                    "capacityUnits": "CORES",
                    "resourceType": "v4-8",
                    "interval": {
                        "startTime": "1970-01-01T00:00:00.500Z",
                        "endTime": "2100-01-01T00:00:00Z",
                    },
                    "usage": {},
                },
                "state": "ACTIVE",
            }
        ]
    }


def test_guest_attributes(rest: Rest) -> None:
    rest.created()
    rest.api.hosts.guest_attributes = lambda host: [
        GuestAttribute("hostkeys", "ssh-ed25519", f"AAAA{host.worker}"),
        GuestAttribute("other", "a", "b"),
    ]
    path = f"v2/{NODE}:getGuestAttributes"
    values = [
        {"items": [{"namespace": "hostkeys", "key": "ssh-ed25519", "value": f"AAAA{worker}"}]}
        for worker in (0, 1)
    ]
    listed = [{"queryPath": "hostkeys/", "queryValue": value} for value in values]
    assert rest("POST", path, {"queryPath": "hostkeys/"}) == {"guestAttributes": listed}
    assert rest("POST", path, {"queryPath": "hostkeys/", "workerIds": ["1"]}) == {
        "guestAttributes": listed[1:]
    }
    error = rest("POST", path, {"workerIds": ["2"]}, status=400)["error"]
    assert f"{NODE} has no worker 2" in error["message"]


@pytest.mark.parametrize(
    ("version", "several"), [("v2", "multisliceParams"), ("v2alpha1", "multiNodeParams")]
)
def test_a_queued_resource(rest: Rest, version: str, several: str) -> None:
    name = f"{ZONE}/queuedResources/q"
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    sent = {
        "tpu": {"nodeSpec": [{"parent": ZONE, several: {"nodeCount": 2, "nodeIdPrefix": "n"}, "node": node}]},
        "spot": {},
    }
    rest.ended(rest("POST", f"{version}/{ZONE}/queuedResources?queuedResourceId=q", sent), version)
    rest.api.until(lambda: rest.api.world.queued_resources.get(name).state == "ACTIVE")
    queued = rest("GET", f"{version}/{name}")
    spec = {
        **sent["tpu"]["nodeSpec"][0],
        "node": {**node, "acceleratorConfig": {"type": "V4", "topology": "2x2x1"}},
    }
    assert queued == {
        "name": name,
        "createTime": queued["createTime"],
        "tpu": {"nodeSpec": [spec]},
        "spot": {},
        "state": {"state": "ACTIVE", "activeData": {}},
    }
    one = rest("GET", f"{version}/{ZONE}/nodes/n-0")
    assert (one["queuedResource"], one["multisliceNode"]) == (name, True)
    assert rest("GET", f"{version}/{ZONE}/queuedResources") == {"queuedResources": [queued]}
    deleted = rest.ended(rest("DELETE", f"{version}/{name}?force=true"), version)
    kind = "google.protobuf.Empty" if version == "v2" else f"google.cloud.tpu.{version}.QueuedResource"
    assert deleted["response"]["@type"] == f"type.googleapis.com/{kind}"


def test_a_queued_resource_that_failed(rest: Rest) -> None:
    rest.api.faults.add("failed-operation", method="CreateQueuedResource", code="ABORTED", message="no")
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    sent = {"tpu": {"nodeSpec": [{"parent": ZONE, "nodeId": "n", "node": node}]}}
    rest.ended(rest("POST", f"v2/{ZONE}/queuedResources?queuedResourceId=q", sent))
    name = f"{ZONE}/queuedResources/q"
    rest.api.until(lambda: rest.api.world.queued_resources.get(name).state == "FAILED")
    error = {"code": 10, "message": "no"}
    assert rest("GET", f"v2/{name}")["state"] == {"state": "FAILED", "failedData": {"error": error}}
