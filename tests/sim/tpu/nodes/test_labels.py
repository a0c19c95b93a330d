"""Labels are checked as Google Cloud checks them, for nodes and for those of queued resources."""

from __future__ import annotations

import re

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

from tests.sim.tpu.api import Api
from tests.sim.tpu.nodes.test_nodes import NODE, PARENT, create, node_message, update

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
