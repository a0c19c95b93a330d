"""Labels are checked as Google Cloud checks them, for nodes and for those of queued resources."""

from __future__ import annotations

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
    {f"k{number}": "v" for number in range(64)},
]
INVALID = [
    ({"Team": "a"}, "Label key 'Team' violates"),
    ({"1a": "a"}, "Label key '1a' violates"),
    ({"-a": "a"}, "Label key '-a' violates"),
    ({"": "a"}, "Label key '' violates"),
    ({"a b": "a"}, "Label key 'a b' violates"),
    ({"a.b/c": "a"}, "Label key 'a.b/c' violates"),
    ({"a" * 64: "b"}, "at most 63 characters"),
    ({"名" * 43: "b"}, "violates"),
    ({"a": "B"}, "Label value 'B' violates"),
    ({"a": "ada@example.com"}, "Label value 'ada@example.com' violates"),
    ({"a": "b" * 64}, "at most 63 characters"),
    ({"a": "b\n"}, "violates"),
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
    with pytest.raises(exceptions.InvalidArgument, match=text):
        create(grpc_client, labels=labels)
    node = node_message(labels=labels)
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id="one", node=node)
    queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    with pytest.raises(exceptions.InvalidArgument, match=text):
        grpc_client.create_queued_resource(parent=PARENT, queued_resource_id="q", queued_resource=queued)
    assert api.world.idle()
    create(grpc_client, labels={"kept": "yes"})
    with pytest.raises(exceptions.InvalidArgument, match=text):
        update(grpc_client, "labels", labels=labels)
    assert dict(grpc_client.get_node(name=NODE).labels) == {"kept": "yes"}


def test_both_transports_say_the_same(client: tpu_v2.TpuClient) -> None:
    with pytest.raises(exceptions.BadRequest, match="Label key 'Team' violates"):
        create(client, labels={"Team": "a"})


def test_labels_cannot_be_patched_while_the_node_is_pending(grpc_client: tpu_v2.TpuClient, api: Api) -> None:
    api.faults.add("stuck-operation", method="CreateNode")
    grpc_client.create_node(parent=PARENT, node_id="one", node=node_message())
    with pytest.raises(exceptions.InvalidArgument, match="update is not supported while in state CREATING"):
        update(grpc_client, "labels", labels={"a": "b"})
