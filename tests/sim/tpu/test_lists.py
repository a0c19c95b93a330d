"""Lists: filters, zones that do not answer; and the odd methods that stand alone.

What zones offer, through the official client.
"""

from __future__ import annotations

from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from tests.sim.tpu.api import POLLING, Api

PARENT = "projects/rehearsal/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
EVERYWHERE = "projects/rehearsal/locations/-"
LOST = "projects/rehearsal/locations/us-central1-b"


def create(client: tpu_v2.TpuClient, parent: str = PARENT, accelerator: str = "v3-8", **fields: Any) -> Any:
    node = tpu_v2.Node(accelerator_type=accelerator, runtime_version="tpu-ubuntu2204-base", **fields)
    return client.create_node(parent=parent, node_id="one", node=node).result(polling=POLLING)


@pytest.mark.parametrize("text", ["state", "(state=READY)", "a=1 OR b=2", "=READY", 'a="open'])
def test_an_invalid_filter_is_refused(grpc_client: tpu_v2.TpuClient, text: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="Invalid filter"):
        grpc_client.list_accelerator_types(request={"parent": PARENT, "filter": text})


def test_the_lists_that_have_a_filter_obey_it(client: tpu_v2.TpuClient) -> None:
    create(client)
    types = client.list_accelerator_types(request={"parent": PARENT, "filter": "type=v3-8"})
    assert [accelerator.type_ for accelerator in types] == ["v3-8"]
    request = {"parent": PARENT, "filter": "version:tf-2.17.1", "page_size": 3}
    assert len(list(client.list_runtime_versions(request=request))) == 4
    assert not client.list_operations({"name": PARENT, "filter": "done=false"}).operations
    assert len(client.list_operations({"name": PARENT, "filter": "metadata.verb=create"}).operations) == 1
    zones = client.list_locations({"name": "projects/rehearsal", "filter": "locationId:us-central2"})
    assert [location.location_id for location in zones.locations] == ["us-central2-b"]


def test_a_zone_that_does_not_answer_is_named_by_lists_over_all(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client)
    create(client, parent=LOST)
    api.faults.add("unreachable", zone="us-central1-b")
    (page,) = client.list_nodes(parent=EVERYWHERE).pages
    assert [node.name for node in page.nodes] == [NODE]
    assert list(page.unreachable) == [LOST]
    (page,) = client.list_queued_resources(parent=EVERYWHERE).pages
    assert list(page.unreachable) == [LOST]
    for call in (lambda: client.list_nodes(parent=LOST), lambda: client.get_node(name=f"{LOST}/nodes/one")):
        with pytest.raises(exceptions.ServiceUnavailable):
            call()
    api.faults.clear()
    assert len(list(client.list_nodes(parent=EVERYWHERE))) == 2


def test_operations_of_all_zones_are_listed_in_part_on_request(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client)
    create(client, parent=LOST)
    api.faults.add("unreachable", zone="us-central1-b")
    request = operations_pb2.ListOperationsRequest(name=EVERYWHERE)
    with pytest.raises(exceptions.ServiceUnavailable):
        client.list_operations(request)
    request.return_partial_success = True
    listed = client.list_operations(request)
    assert len(listed.operations) == 1
    assert list(listed.unreachable) == [LOST]


def test_a_service_identity_is_the_same_every_time(client: tpu_v2.TpuClient) -> None:
    emails = {client.generate_service_identity(request={"parent": PARENT}).identity.email for _ in range(2)}
    (email,) = emails
    assert email.startswith("service-")
    assert email.endswith("@cloud-tpu.iam.gserviceaccount.com")


def test_a_data_disk_is_attached_and_detached_and_only_read_by_several_hosts(
    client: tpu_v2.TpuClient,
) -> None:
    create(client)
    disk = {"source_disk": "projects/rehearsal/zones/europe-west4-a/disks/d", "mode": "READ_WRITE"}

    def attach(*disks: dict[str, str]) -> tpu_v2.Node:
        node = tpu_v2.Node(name=NODE, data_disks=list(disks))
        return client.update_node(node=node, update_mask="dataDisks").result(polling=POLLING)

    assert attach(disk).data_disks[0].source_disk == disk["source_disk"]
    assert not attach().data_disks
    client.delete_node(name=NODE).result(polling=POLLING)
    with pytest.raises(exceptions.BadRequest, match="read-only"):
        create(client, accelerator="v3-32", data_disks=[disk])
    create(client, accelerator="v3-32")
    with pytest.raises(exceptions.BadRequest, match="read-only"):
        attach(disk)
    assert attach({**disk, "mode": "READ_ONLY"}).data_disks


def test_gcloud_lists_the_tensorflow_versions_of_api_v1(api: Api) -> None:
    answer = requests.get(f"{api.rest_address}/v1/{PARENT}/tensorflowVersions", timeout=60)
    versions = [version["version"] for version in answer.json()["tensorflowVersions"]]
    assert "2.17.0" in versions
    wrong = f"{api.rest_address}/v1/projects/rehearsal/locations/mars/tensorflowVersions"
    assert requests.get(wrong, timeout=60).status_code == 403


def test_requests_and_transitions_are_noted_in_order_with_their_time(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    create(client)
    client.delete_node(name=NODE).result(polling=POLLING)
    noted = [(event.kind, event.what) for event in api.world.events if event.what != "GetOperation"]
    assert noted == [
        ("request", "CreateNode"),
        ("transition", "CREATING"),
        ("transition", "READY"),
        ("request", "DeleteNode"),
        ("transition", "DELETING"),
        ("transition", "DELETED"),
    ]
    times = [event.time for event in api.world.events]
    assert times == sorted(times)
    assert times[0] > 1_700_000_000


PROJECT = "projects/rehearsal"
ZONE = f"{PROJECT}/locations/us-central2-b"


def test_a_zone_lists_its_accelerator_types_with_their_topologies(client: tpu_v2.TpuClient) -> None:
    types = {offered.type_: offered for offered in client.list_accelerator_types(parent=ZONE)}
    assert "v4-8" in types
    assert "v3-8" not in types
    (config,) = types["v4-8"].accelerator_configs
    assert (config.type_, config.topology) == (tpu_v2.AcceleratorConfig.Type.V4, "2x2x1")
    assert client.get_accelerator_type(name=f"{ZONE}/acceleratorTypes/v4-8") == types["v4-8"]
    with pytest.raises(exceptions.NotFound):
        client.get_accelerator_type(name=f"{ZONE}/acceleratorTypes/v3-8")


def test_runtime_versions_are_the_bases_and_those_of_tensorflow(client: tpu_v2.TpuClient) -> None:
    versions = {runtime.version for runtime in client.list_runtime_versions(parent=ZONE)}
    assert {"tpu-ubuntu2204-base", "v2-alpha-tpuv6e"} <= versions
    assert {f"tpu-vm-tf-2.17.0{form}" for form in ("-pjrt", "-se", "-pod-pjrt", "-pod-se")} <= versions
    name = f"{ZONE}/runtimeVersions/tpu-ubuntu2204-base"
    assert client.get_runtime_version(name=name).version == "tpu-ubuntu2204-base"


def test_locations_are_the_zones_of_the_catalogue(client: tpu_v2.TpuClient) -> None:
    locations = client.list_locations({"name": PROJECT}).locations
    assert "us-central2-b" in {location.location_id for location in locations}
    location = client.get_location({"name": ZONE})
    assert (location.name, location.labels["cloud.googleapis.com/region"]) == (ZONE, "us-central2")
    with pytest.raises(exceptions.Forbidden):
        client.get_location({"name": f"{PROJECT}/locations/mars"})
