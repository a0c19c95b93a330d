"""Nodes through the official client, over gRPC and over REST.

Labels are checked as Google Cloud checks them, for nodes and for those of queued resources.
"""

from __future__ import annotations

import re

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2

from tests.sim.tpu.api import POLLING, Api

PARENT = "projects/rehearsal/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
State = tpu_v2.Node.State


def node_message(accelerator: str = "v3-8", **fields: object) -> tpu_v2.Node:
    return tpu_v2.Node(accelerator_type=accelerator, runtime_version="tpu-ubuntu2204-base", **fields)


def create(
    client: tpu_v2.TpuClient, node_id: str = "one", accelerator: str = "v3-8", **fields: object
) -> tpu_v2.Node:
    operation = client.create_node(parent=PARENT, node_id=node_id, node=node_message(accelerator, **fields))
    return operation.result(polling=POLLING)


def update(client: tpu_v2.TpuClient, *paths: str, **fields: object) -> tpu_v2.Node:
    mask = field_mask_pb2.FieldMask(paths=paths)
    return client.update_node(node=tpu_v2.Node(name=NODE, **fields), update_mask=mask).result(polling=POLLING)


def test_a_created_node_is_ready_and_shows_all_that_was_sent(client: tpu_v2.TpuClient) -> None:
    node = create(
        client,
        labels={"team": "vision"},
        metadata={"ssh-keys": "ann:ssh-ed25519 AAAA ann", "startup-script": "true"},
        network_config={"network": "default", "enable_external_ips": True},
        scheduling_config={"spot": True},
        service_account={"email": "sa@rehearsal", "scope": ["cloud-platform"]},
        tags=["tpu"],
    )
    assert node == client.get_node(name=NODE)
    assert (node.name, node.state, node.health) == (NODE, State.READY, tpu_v2.Node.Health.HEALTHY)
    assert node.api_version == tpu_v2.Node.ApiVersion.V2
    assert (node.accelerator_config.type_, node.accelerator_config.topology) == (
        tpu_v2.AcceleratorConfig.Type.V3,
        "2x2",
    )
    assert node.id > 0
    assert node.create_time.year >= 2024
    assert dict(node.labels) == {"team": "vision"}
    assert node.metadata["startup-script"] == "true"
    assert node.scheduling_config.spot
    assert list(node.service_account.scope) == ["cloud-platform"]
    assert list(node.tags) == ["tpu"]


def test_every_host_has_an_address_of_its_own_and_one_endpoint_in_worker_order(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    node = create(client, accelerator="v3-32", network_config={"enable_external_ips": True})
    addresses = [f"127.77.0.{worker + 1}" for worker in range(4)]
    assert [endpoint.ip_address for endpoint in node.network_endpoints] == addresses
    assert [endpoint.access_config.external_ip for endpoint in node.network_endpoints] == addresses
    assert {endpoint.port for endpoint in node.network_endpoints} == {8470}
    hosts = [api.hosts.up[address] for address in addresses]
    assert [host.hostname for host in hosts] == [f"t1v-n-{node.id & 0xFFFFFFFF:08x}-w-{i}" for i in range(4)]
    assert {host.peers for host in hosts} == {tuple(addresses)}
    assert {host.node_uid for host in hosts} == {str(node.id)}


def test_a_node_without_external_ips_has_internal_addresses_only(grpc_client: tpu_v2.TpuClient) -> None:
    assert not create(grpc_client).network_endpoints[0].access_config.external_ip


def test_a_node_can_be_requested_by_type_and_topology(grpc_client: tpu_v2.TpuClient) -> None:
    config = tpu_v2.AcceleratorConfig(type_="V3", topology="4x4")
    node = tpu_v2.Node(accelerator_config=config, runtime_version="tpu-ubuntu2204-base")
    created = grpc_client.create_node(parent=PARENT, node_id="one", node=node).result(polling=POLLING)
    assert (created.accelerator_type, len(created.network_endpoints)) == ("v3-32", 4)


def test_a_deleted_node_is_removed_with_its_disk_and_its_id_is_not_used_again(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    first = create(client)
    client.delete_node(name=NODE).result(polling=POLLING)
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=NODE)
    assert api.hosts.calls == [("start", "one"), ("remove", "one")]
    assert api.world.idle()
    second = create(client)
    assert second.id != first.id
    assert second.network_endpoints != first.network_endpoints


def test_an_operation_carries_googles_metadata(client: tpu_v2.TpuClient) -> None:
    operation = client.create_node(parent=PARENT, node_id="one", node=node_message())
    operation.result(polling=POLLING)
    metadata = operation.metadata
    assert isinstance(metadata, tpu_v2.OperationMetadata)
    assert (metadata.target, metadata.verb, metadata.api_version) == (NODE, "create", "v2")
    assert metadata.end_time >= metadata.create_time
    assert operation.operation.metadata.type_url == (
        "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata"
    )


def test_lists_come_in_pages_over_one_zone_or_all(client: tpu_v2.TpuClient) -> None:
    for number in range(5):
        create(client, f"n{number}")
    elsewhere = "projects/rehearsal/locations/us-central1-b"
    client.create_node(parent=elsewhere, node_id="far", node=node_message()).result(polling=POLLING)
    pages = client.list_nodes(request={"parent": PARENT, "page_size": 2}).pages
    assert [[node.name[-2:] for node in page.nodes] for page in pages] == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    everywhere = client.list_nodes(request={"parent": "projects/rehearsal/locations/-", "page_size": 4})
    assert [node.name.split("/")[-1] for node in everywhere] == ["n0", "n1", "n2", "n3", "n4", "far"]
    assert not list(client.list_nodes(parent="projects/other/locations/-"))


def test_a_page_goes_on_after_the_last_name_seen_though_it_was_deleted(
    grpc_client: tpu_v2.TpuClient,
) -> None:
    for number in range(3):
        create(grpc_client, f"n{number}")
    first = next(iter(grpc_client.list_nodes(request={"parent": PARENT, "page_size": 2}).pages))
    grpc_client.delete_node(name=f"{PARENT}/nodes/n1").result(polling=POLLING)
    rest = grpc_client.list_nodes(request={"parent": PARENT, "page_token": first.next_page_token})
    assert [node.name[-2:] for node in rest] == ["n2"]


@pytest.mark.parametrize("page_fields", [{"page_size": -1}, {"page_token": "%%"}])
def test_a_page_that_cannot_be_is_an_invalid_argument(
    grpc_client: tpu_v2.TpuClient, page_fields: dict[str, object]
) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        grpc_client.list_nodes(request={"parent": PARENT, **page_fields})


def test_an_update_replaces_complete_maps_of_the_fields_in_its_mask_alone(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    create(client, metadata={"a": "1", "b": "2"}, labels={"team": "vision"})
    node = update(client, "metadata", metadata={"c": "3"}, labels={"not": "in the mask"})
    assert dict(node.metadata) == {"c": "3"}
    assert dict(node.labels) == {"team": "vision"}
    assert api.hosts.metadata[NODE] == {"c": "3"}
    assert node.id == client.get_node(name=NODE).id


def test_a_field_in_the_mask_that_is_not_sent_is_cleared(client: tpu_v2.TpuClient) -> None:
    create(client, metadata={"a": "1"}, description="before", tags=["x"], labels={"a": "b"})
    node = update(client, "metadata", "description", "tags", "labels")
    assert (dict(node.metadata), node.description, list(node.tags), dict(node.labels)) == ({}, "", [], {})


def test_external_addresses_can_be_switched_on_later(client: tpu_v2.TpuClient) -> None:
    assert not create(client).network_endpoints[0].access_config.external_ip
    node = update(client, "network_config.enable_external_ips", network_config={"enable_external_ips": True})
    assert node.network_endpoints[0].access_config.external_ip == node.network_endpoints[0].ip_address


@pytest.mark.parametrize("paths", [[], ["accelerator_type"], ["metadata", "nonsense"]])
def test_a_mask_that_is_empty_or_names_what_cannot_change_is_refused(
    grpc_client: tpu_v2.TpuClient, paths: list[str]
) -> None:
    create(grpc_client)
    with pytest.raises(exceptions.InvalidArgument, match="update_mask"):
        update(grpc_client, *paths)


def test_one_host_can_be_stopped_and_started_and_keeps_its_disk(client: tpu_v2.TpuClient, api: Api) -> None:
    create(client)
    assert client.stop_node(request={"name": NODE}).result(polling=POLLING).state == State.STOPPED
    assert client.start_node(request={"name": NODE}).result(polling=POLLING).state == State.READY
    assert api.hosts.calls == [("start", "one"), ("stop", "one"), ("start", "one")]


def test_guest_attributes_have_one_entry_a_worker_under_the_requested_path(client: tpu_v2.TpuClient) -> None:
    create(client, accelerator="v3-32")
    every = client.get_guest_attributes(request={"name": NODE}).guest_attributes
    assert len(every) == 4
    assert {item.key for item in every[0].query_value.items} == {"ssh-ed25519", "Hostname"}
    request = {"name": NODE, "worker_ids": ["2"], "query_path": "hostkeys/ssh-ed25519"}
    (third,) = client.get_guest_attributes(request=request).guest_attributes
    (item,) = third.query_value.items
    assert (item.namespace, item.key, item.value) == ("hostkeys", "ssh-ed25519", "AAAA2")
    with pytest.raises(exceptions.BadRequest, match="no worker 4"):
        client.get_guest_attributes(request={"name": NODE, "worker_ids": ["4"]})


def test_the_empty_worker_that_gcloud_sends_for_all_of_them_means_all(client: tpu_v2.TpuClient) -> None:
    create(client, accelerator="v3-32")
    request = {"name": NODE, "worker_ids": [""]}
    assert len(client.get_guest_attributes(request=request).guest_attributes) == 4


VALID = [
    {},
    {"a": ""},
    {"a" * 63: "b" * 63},
    {"team-1_x": "0-_"},
    {"größe": "größe"},
    {"名前": "東京"},
    {"x²": "½ⅷ٣"},
    {f"k{number}": "v" for number in range(64)},
]
INVALID = [
    ({"Team": "a"}, """key "Team" contains invalid character 'T' at index 0"""),
    ({"É": "a"}, """key "É" contains invalid character 'É' at index 0"""),
    ({"1a": "a"}, 'key "1a" must start with a lowercase letter'),
    ({"-a": "a"}, 'key "-a" must start with a lowercase letter'),
    ({"": "a"}, 'key "" cannot be empty'),
    ({"a b": "a"}, """key "a b" contains invalid character ' ' at index 1"""),
    ({"a.b/c": "a"}, """key "a.b/c" contains invalid character '.' at index 1"""),
    ({"a" * 64: "b"}, "is longer than 63 characters"),
    ({"名" * 43: "b"}, "is longer than 128 bytes"),
    ({"a": "B"}, """value "B" contains invalid character 'B' at index 0 for key "a\""""),
    ({"a": "1.9-x"}, """value "1.9-x" contains invalid character '.' at index 1 for key "a\""""),
    ({"a": "ada@example.com"}, "contains invalid character '@' at index 3"),
    ({"a": "b" * 64}, "is longer than 63 characters"),
    ({"a": "b\n"}, "at index 1"),
    ({f"k{number}": "v" for number in range(65)}, "The number of labels, 65, exceeds the limit of 64"),
]


@pytest.mark.parametrize("labels", VALID, ids=range(len(VALID)))
def test_what_google_cloud_accepts_is_accepted(grpc_client: tpu_v2.TpuClient, labels: dict[str, str]) -> None:
    assert dict(create(grpc_client, labels=labels).labels) == labels
    assert dict(update(grpc_client, "labels", labels=labels).labels) == labels


@pytest.mark.parametrize(("labels", "text"), INVALID, ids=range(len(INVALID)))
def test_anything_else_is_an_invalid_argument(
    grpc_client: tpu_v2.TpuClient, api: Api, labels: dict[str, str], text: str
) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=re.escape(text)):
        create(grpc_client, labels=labels)
    node = node_message(labels=labels)
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id="one", node=node)
    queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    with pytest.raises(exceptions.InvalidArgument, match=re.escape(text)):
        grpc_client.create_queued_resource(parent=PARENT, queued_resource_id="q", queued_resource=queued)
    assert api.world.idle()
    create(grpc_client, labels={"kept": "yes"})
    with pytest.raises(exceptions.InvalidArgument, match=re.escape(text)):
        update(grpc_client, "labels", labels=labels)
    assert dict(grpc_client.get_node(name=NODE).labels) == {"kept": "yes"}


def test_both_transports_say_the_same(client: tpu_v2.TpuClient) -> None:
    with pytest.raises(exceptions.BadRequest, match=r"resource labels are invalid: key \"Team\" contains"):
        create(client, labels={"Team": "a"})


def test_labels_cannot_be_patched_while_the_node_is_pending(grpc_client: tpu_v2.TpuClient, api: Api) -> None:
    api.faults.add("stuck-operation", method="CreateNode")
    grpc_client.create_node(parent=PARENT, node_id="one", node=node_message())
    with pytest.raises(exceptions.InvalidArgument, match="update is not supported while in state CREATING"):
        update(grpc_client, "labels", labels={"a": "b"})


BAD_IDS = ["BAD_Name", "1st", "-a", "a-", "a_", "a.b", "a~b", "é", "a" * 64, "x" * 78]


@pytest.mark.parametrize("identifier", BAD_IDS)
def test_a_name_that_no_resource_can_have_is_refused(
    client: tpu_v2.TpuClient, api: Api, identifier: str
) -> None:
    kinds = (exceptions.InvalidArgument, exceptions.BadRequest)
    with pytest.raises(kinds, match=f"Invalid node ID '{identifier}'"):
        client.create_node(parent=PARENT, node_id=identifier, node=node_message())
    for node_id, queued_id in ((identifier, "q"), ("one", identifier)):
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id=node_id, node=node_message())
        queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
        with pytest.raises(kinds, match=f"ID '{identifier}'"):
            client.create_queued_resource(parent=PARENT, queued_resource_id=queued_id, queued_resource=queued)
    assert api.world.idle()


@pytest.mark.parametrize("identifier", ["a", "sky_tpu", "a-1", "a" * 63])
def test_a_name_that_google_is_known_to_take_is_created(
    grpc_client: tpu_v2.TpuClient, identifier: str
) -> None:
    operation = grpc_client.create_node(parent=PARENT, node_id=identifier, node=node_message())
    assert operation.result().name == f"{PARENT}/nodes/{identifier}"


def test_the_numbers_of_several_nodes_count_in_their_names(grpc_client: tpu_v2.TpuClient, api: Api) -> None:
    for prefix, count, taken in (("a" * 61, 2, True), ("b" * 61, 11, False)):
        several = {"node_count": count, "node_id_prefix": prefix}
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
            parent=PARENT, multislice_params=several, node=node_message()
        )
        queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
        request = {"parent": PARENT, "queued_resource_id": prefix[:1], "queued_resource": queued}
        if taken:
            grpc_client.create_queued_resource(**request)
            continue
        with pytest.raises(exceptions.InvalidArgument, match=f"Invalid node ID '{prefix}-10'"):
            grpc_client.create_queued_resource(**request)


def test_a_name_that_is_taken_is_named_in_the_details(grpc_client: tpu_v2.TpuClient) -> None:
    create(grpc_client)
    with pytest.raises(exceptions.Conflict) as raised:
        grpc_client.create_node(parent=PARENT, node_id="one", node=node_message())
    (detail,) = raised.value.details
    assert detail.resource_name == NODE
