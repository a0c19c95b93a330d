"""Tests clients that build their methods from the API's discovery document, as SkyPilot's does.

API v1 as googleapiclient asks it, which TensorFlow's resolver and cloud-tpu-client use, and by gRPC.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import googleapiclient
import grpc
import pytest
from google.api_core.exceptions import InvalidArgument, MethodNotImplemented, NotFound
from google.cloud import tpu_v1, tpu_v2
from google.cloud.tpu_v1.services.tpu.transports import TpuGrpcTransport
from googleapiclient import discovery
from googleapiclient.errors import HttpError, UnknownApiNameOrVersion
from httplib2 import Http

from tests.sim.tpu.api import POLLING, Api
from tpuctl.sim.tpu.rest_api import document

PARENT = "projects/rehearsal/locations/us-central2-b"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", "labels": {"team": "vision"}}
DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"


def service(api: Api, http: Http, version: str, query: str) -> Any:
    return discovery.build(
        "tpu",
        version,
        http=http,
        client_options={"api_endpoint": api.rest_address},
        cache_discovery=False,
        discoveryServiceUrl=f"{api.rest_address}/$discovery/rest{query}",
        static_discovery=False,
    )


@pytest.fixture(params=[("v2", "?version=v2"), ("v2alpha1", "?version={apiVersion}"), ("v2alpha1", "")])
def locations(api: Api, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The client's methods of one version; SkyPilot names none in the URL."""
    with closing(Http()) as http:
        yield service(api, http, *request.param).projects().locations()


def test_a_node_is_created_listed_changed_and_deleted(locations: Any) -> None:
    nodes = locations.nodes()
    created = nodes.create(parent=PARENT, nodeId="one", body=NODE).execute()
    assert locations.operations().get(name=created["name"]).execute()["name"] == created["name"]
    while not locations.operations().get(name=created["name"]).execute().get("done"):
        pass
    name = f"{PARENT}/nodes/one"
    assert nodes.get(name=name).execute()["state"] == "READY"
    nodes.patch(name=name, updateMask="labels", body={"labels": {"team": "speech"}}).execute()
    assert nodes.get(name=name).execute()["labels"] == {"team": "speech"}
    assert nodes.stop(name=name, body={}).execute()["name"]
    listing = nodes.list(parent=PARENT, pageSize=1)
    assert [node["name"] for node in listing.execute()["nodes"]] == [name]
    assert nodes.list_next(listing, {}) is None, "a list of pages"
    assert nodes.delete(name=name).execute()["name"]


def test_a_queued_resource_is_created_and_deleted(locations: Any) -> None:
    queue = locations.queuedResources()
    spec = {"parent": PARENT, "nodeId": "n1", "node": NODE}
    body = {"tpu": {"nodeSpec": [spec]}}
    queue.create(parent=PARENT, queuedResourceId="q1", body=body).execute()
    assert [listed["name"] for listed in queue.list(parent=PARENT).execute()["queuedResources"]] == [
        f"{PARENT}/queuedResources/q1"
    ]
    assert queue.delete(name=f"{PARENT}/queuedResources/q1", force=True).execute()["name"]


@pytest.mark.parametrize(("specs", "identifier"), [("nodeSpec", "nodeId"), ("node_spec", "node_id")])
def test_a_single_node_may_stand_for_a_list_as_in_googles_examples(
    locations: Any, specs: str, identifier: str
) -> None:
    node = {**NODE, "dataDisks": {"sourceDisk": "d", "mode": "READ_ONLY"}}
    body = {"tpu": {specs: {"parent": PARENT, identifier: "n1", "node": node}}}
    queue = locations.queuedResources()
    queue.create(parent=PARENT, queuedResourceId="q1", body=body).execute()
    (requested,) = queue.get(name=f"{PARENT}/queuedResources/q1").execute()["tpu"]["nodeSpec"]
    assert (requested["nodeId"], requested["node"]["labels"]) == ("n1", NODE["labels"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"colour": "red"}, "Unknown name \"colour\" at 'node': Cannot find field."),
        (
            {"schedulingConfig": {"spt": True}},
            "Unknown name \"spt\" at 'node.schedulingConfig': Cannot find field.",
        ),
        ({"tags": {"a": 1}}, "Invalid value at 'node.tags'."),
        ({"description": {"a": 1}}, "Invalid value at 'node.description'."),
        ({"networkConfig": 3}, "Invalid value at 'node.networkConfig'."),
    ],
)
def test_a_field_that_does_not_fit_is_refused_in_googles_words(
    locations: Any, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(HttpError) as raised:
        locations.nodes().create(parent=PARENT, nodeId="one", body={**NODE, **changes}).execute()
    assert raised.value.reason == f"Invalid JSON payload received. {reason}"


def test_skypilot_knows_a_zone_without_tpus(locations: Any) -> None:
    with pytest.raises(HttpError) as raised:
        locations.nodes().list(parent="projects/rehearsal/locations/us-east1-x").execute()
    assert raised.value.status_code == 403
    assert "Location us-east1-x is not found or access is unauthorized." in str(raised.value)


def test_a_version_that_there_is_not_is_an_error(api: Api) -> None:
    with closing(Http()) as http, pytest.raises((HttpError, UnknownApiNameOrVersion)):
        service(api, http, "v9", "?version=v9")


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_every_method_is_described_as_google_does(version: str) -> None:
    ours = methods(document(version))
    google = methods(json.loads((DOCUMENTS / f"tpu.{version}.json").read_text()))
    assert len(ours) > 20
    for identifier, method in ours.items():
        real = google[identifier]
        for key in ("httpMethod", "path"):
            assert method[key] == real[key], identifier
        assert ("request" in method) == ("request" in real), identifier
        unknown = set(method["parameters"]) - set(real["parameters"])
        assert unknown <= {"returnPartialSuccess"}, identifier
        for name in set(method["parameters"]) - unknown:
            for key in ("location", "type", "required"):
                assert method["parameters"][name].get(key) == real["parameters"][name].get(key), identifier


def methods(resource: Any) -> dict[str, Any]:
    """Return every method of a discovery document by its id."""
    own = {method["id"]: method for method in resource.get("methods", {}).values()}
    for inner in resource.get("resources", {}).values():
        own |= methods(inner)
    return own


@pytest.fixture(params=["its own", "the simulator's"])
def nodes(api: Api, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The client's methods of nodes, by each of the two descriptions of the API."""
    ours = {
        "discoveryServiceUrl": api.rest_address + "/$discovery/rest?version={apiVersion}",
        "static_discovery": False,
    }
    with closing(Http()) as http:
        service = discovery.build(
            "tpu",
            "v1",
            http=http,
            client_options={"api_endpoint": api.rest_address},
            cache_discovery=False,
            **(ours if request.param == "the simulator's" else {}),
        )
        yield service.projects().locations().nodes()


def create(client: tpu_v2.TpuClient) -> None:
    node = tpu_v2.Node(
        accelerator_type="v4-16",
        runtime_version="tpu-vm-tf-2.17.1-pod-pjrt",
        scheduling_config={"preemptible": True},
        labels={"team": "vision"},
    )
    client.create_node(parent=PARENT, node_id="one", node=node).result(polling=POLLING)


def test_a_node_has_the_fields_that_resolvers_read(grpc_client: tpu_v2.TpuClient, nodes: Any) -> None:
    create(grpc_client)
    node = nodes.get(name=f"{PARENT}/nodes/one").execute()
    endpoints = grpc_client.get_node(name=f"{PARENT}/nodes/one").network_endpoints
    addresses = [endpoint.ip_address for endpoint in endpoints]
    assert node.pop("createTime").endswith("Z")
    assert (
        node
        == {
            "name": f"{PARENT}/nodes/one",
            "acceleratorType": "v4-16",
            "state": "READY",
            "health": "HEALTHY",
            "tensorflowVersion": "tpu-vm-tf-2.17.1-pod-pjrt",
            "labels": {"team": "vision"},
            "ipAddress": addresses[0],
            "port": "8470",
            "networkEndpoints": [{"ipAddress": address, "port": 8470} for address in addresses],
            "network": node["network"],
            "schedulingConfig": {"preemptible": True},
            "apiVersion": "V2_ALPHA1",
            "cidrBlock": node.get("cidrBlock"),
        }
        or "cidrBlock" not in node
    )
    assert nodes.list(parent=PARENT).execute()["nodes"][0]["name"] == node["name"]


def test_what_is_not_there_is_not_found(nodes: Any) -> None:
    with pytest.raises(HttpError) as missing:
        nodes.get(name=f"{PARENT}/nodes/none").execute()
    assert missing.value.status_code == 404
    assert "was not found" in str(missing.value)


def test_a_version_of_tensorflow_is_described(api: Api) -> None:
    with closing(Http()) as http:
        options = {"api_endpoint": api.rest_address}
        service = discovery.build("tpu", "v1", http=http, client_options=options, cache_discovery=False)
        versions = service.projects().locations().tensorflowVersions()
        listed = versions.list(parent=PARENT).execute()["tensorflowVersions"]
        for version in listed[:2]:
            assert versions.get(name=version["name"]).execute() == version
        with pytest.raises(HttpError, match=r"tensorflowVersions/0\.1' was not found") as missing:
            versions.get(name=f"{PARENT}/tensorflowVersions/0.1").execute()
        assert missing.value.status_code == 404


@pytest.fixture
def old_client(channel: grpc.Channel) -> tpu_v1.TpuClient:
    return tpu_v1.TpuClient(transport=TpuGrpcTransport(channel=channel))


def test_the_client_of_v1_reads(old_client: tpu_v1.TpuClient, grpc_client: tpu_v2.TpuClient) -> None:
    create(grpc_client)
    (node,) = old_client.list_nodes(parent=PARENT)
    assert node == old_client.get_node(name=f"{PARENT}/nodes/one")
    assert (node.accelerator_type, node.state.name, node.labels) == ("v4-16", "READY", {"team": "vision"})
    assert [endpoint.port for endpoint in node.network_endpoints] == [8470, 8470]
    (first, *_) = old_client.list_tensor_flow_versions(parent=PARENT)
    assert old_client.get_tensor_flow_version(name=first.name) == first
    (kind, *_) = old_client.list_accelerator_types(parent=PARENT)
    assert old_client.get_accelerator_type(name=kind.name) == kind
    with pytest.raises(NotFound):
        old_client.get_node(name=f"{PARENT}/nodes/none")
    with pytest.raises(InvalidArgument, match="'name_value'"):
        old_client.get_node(name="name_value")


def test_the_client_of_v1_is_told_that_it_changes_nothing(old_client: tpu_v1.TpuClient) -> None:
    name = f"{PARENT}/nodes/one"
    for call, request in (
        (old_client.create_node, {"parent": PARENT, "node_id": "one", "node": {"accelerator_type": "v4-8"}}),
        (old_client.delete_node, {"name": name}),
        (old_client.reimage_node, {"name": name}),
        (old_client.stop_node, {"name": name}),
        (old_client.start_node, {"name": name}),
    ):
        with pytest.raises(MethodNotImplemented, match="serves API v1, of TPU Nodes, for reading alone"):
            call(request)
