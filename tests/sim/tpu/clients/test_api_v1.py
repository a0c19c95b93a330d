"""API v1 as googleapiclient asks it, which TensorFlow's resolver and cloud-tpu-client use, and by gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument, MethodNotImplemented, NotFound
from google.cloud import tpu_v1, tpu_v2
from google.cloud.tpu_v1.services.tpu.transports import TpuGrpcTransport
from googleapiclient import discovery
from googleapiclient.errors import HttpError
from httplib2 import Http

from tests.sim.tpu.api import POLLING, Api

PARENT = "projects/rehearsal/locations/us-central2-b"


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
