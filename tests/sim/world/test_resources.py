"""What the records of nodes, queued resources and operations tell of themselves.

The types of the fields that requests may set, compared with the messages of Google's own clients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from google.cloud import tpu_v2, tpu_v2alpha1
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tpuctl.sim.records import Host
from tpuctl.sim.tpu.messages import MULTISLICE_PARAMS
from tpuctl.sim.world.resources import (
    Node,
    NodeFields,
    Operation,
    QueuedResource,
    QueuedResourceFields,
    node_fields,
)

PARENT = "projects/p/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/n1"
QUEUED = f"{PARENT}/queuedResources/q"
ADDRESSES = ("127.77.0.1", "127.77.0.2")


def node(uid: int = 0x1_0000_00AB, **fields: Any) -> Node:
    """Return a node of two hosts with these fields besides its type and version."""
    spec: NodeFields = {"acceleratorType": "v3-16", "runtimeVersion": "tf-2.17", **fields}  # type: ignore[typeddict-item]
    return Node(NODE, uid, "READY", 100.0, spec, ADDRESSES)


def test_a_node_is_made_of_its_hosts_in_the_order_of_its_workers() -> None:
    one = replace(node(), slices=("127.77.0.1", "127.77.0.9"))
    common: dict[str, Any] = {
        "node": NODE,
        "node_uid": str(0x1_0000_00AB),
        "accelerator_type": "v3-16",
        "runtime_version": "tf-2.17",
        "peers": ADDRESSES,
        "preemptible": False,
        "slices": ("127.77.0.1", "127.77.0.9"),
        "named_account": "",
        "external": False,
    }
    assert one.hosts() == [
        Host(worker=0, address="127.77.0.1", hostname="t1v-n-000000ab-w-0", **common),
        Host(worker=1, address="127.77.0.2", hostname="t1v-n-000000ab-w-1", **common),
    ]


def test_the_name_of_a_host_has_the_last_32_bits_of_the_id_of_its_node() -> None:
    names = [node(uid).hosts()[0].hostname for uid in (0, 0xFFFFFFFF, 0x1_0000_0000, 0x2_DEAD_BEEF)]
    assert names == ["t1v-n-00000000-w-0", "t1v-n-ffffffff-w-0", "t1v-n-00000000-w-0", "t1v-n-deadbeef-w-0"]


def test_nothing_is_known_of_the_health_and_the_origin_of_a_node_at_first() -> None:
    one = node()
    assert (one.health, one.queued_resource, one.multislice, one.slices) == (
        "HEALTH_UNSPECIFIED", "", False, (),
    )  # fmt: skip
    assert (one.reservation, one.maintenance, one.maintenance_workers) == ("", None, ())


@pytest.mark.parametrize(
    ("fields", "account"),
    [
        ({}, ""),
        ({"serviceAccount": {}}, ""),
        ({"serviceAccount": {"email": "default"}}, ""),
        ({"serviceAccount": {"email": "job@p.iam.gserviceaccount.com"}}, "job@p.iam.gserviceaccount.com"),
    ],
)
def test_hosts_run_as_the_account_that_their_node_names(fields: dict[str, Any], account: str) -> None:
    assert {host.named_account for host in node(**fields).hosts()} == {account}


@pytest.mark.parametrize(
    ("fields", "external"),
    [
        ({}, False),
        ({"networkConfig": {}}, False),
        ({"networkConfig": {"enableExternalIps": False}}, False),
        ({"networkConfig": {"enableExternalIps": True}}, True),
        ({"networkConfigs": [{}, {"enableExternalIps": True}]}, True),
        ({"networkConfigs": [{}, {"enableExternalIps": False}]}, False),
    ],
)
def test_hosts_have_external_addresses_if_one_of_their_networks_has(
    fields: dict[str, Any], external: bool
) -> None:
    one = node(**fields)
    assert one.external_ips is external
    assert {host.external for host in one.hosts()} == {external}


@pytest.mark.parametrize(
    ("scheduling", "preemptible", "ends"),
    [
        ({}, False, False),
        ({"spot": False, "preemptible": False}, False, False),
        ({"spot": True}, True, False),
        ({"preemptible": True}, True, True),
    ],
)
def test_spot_and_preemptible_nodes_are_taken_back_and_preemptible_ones_end_after_a_day(
    scheduling: dict[str, bool], preemptible: bool, ends: bool
) -> None:
    one = node(schedulingConfig=scheduling)
    assert (one.preemptible, one.ends_after_24_hours) == (preemptible, ends)
    assert {host.preemptible for host in one.hosts()} == {preemptible}
    assert node().ends_after_24_hours is False


def test_the_metadata_of_a_node_is_a_copy() -> None:
    one = node(metadata={"a": "1"})
    one.metadata["a"] = "2"
    assert (one.metadata, node().metadata) == ({"a": "1"}, {})


def test_an_update_replaces_fields_but_of_the_network_those_that_it_has() -> None:
    one = node(
        labels={"a": "1", "b": "2"}, description="old", networkConfig={"network": "n", "queueCount": 2}
    )
    changed = one.updated({"labels": {"a": "3"}, "networkConfig": {"queueCount": 4}})
    assert changed.spec == {
        "acceleratorType": "v3-16",
        "runtimeVersion": "tf-2.17",
        "labels": {"a": "3"},
        "description": "old",
        "networkConfig": {"network": "n", "queueCount": 4},
    }
    assert one.updated({"tags": ["t"]}).spec["networkConfig"] == {"network": "n", "queueCount": 2}
    assert node().updated({"networkConfig": {"network": "m"}}).spec["networkConfig"] == {"network": "m"}
    assert node().updated({"tags": ["t"]}).spec.get("networkConfig") is None


@pytest.mark.parametrize(
    ("spec", "reservation"),
    [
        ({}, ""),
        ({"guaranteed": {}}, ""),
        ({"guaranteed": {"reserved": False}}, ""),
        ({"guaranteed": {"reserved": True}}, f"{PARENT}/reservations/-"),
        ({"reservationName": f"{PARENT}/reservations/r"}, f"{PARENT}/reservations/r"),
        ({"reservationName": "r", "guaranteed": {"reserved": True}}, "r"),
    ],
)
def test_a_queued_resource_asks_for_one_reservation_for_any_or_for_none(spec: Any, reservation: str) -> None:
    queued = QueuedResource(QUEUED, "ACCEPTED", 100.0, 100.0, spec, {})
    assert queued.reservation == reservation


def test_a_queued_resource_begins_with_no_attempt_and_no_end_in_view() -> None:
    queued = QueuedResource(QUEUED, "ACCEPTED", 100.0, 100.0, {}, {})
    assert (queued.initiator, queued.operations, queued.attempts) == ("", (), 0)
    assert (queued.requeue, queued.force) == (False, False)


@pytest.mark.parametrize(
    ("target", "on_node"), [(NODE, True), (QUEUED, False), (f"{PARENT}/queuedResources/nodes", False)]
)
def test_an_operation_is_on_a_node_or_on_a_queued_resource(target: str, on_node: bool) -> None:
    operation = Operation("o", "delete", target, 100.0, "READY")
    assert operation.on_node is on_node


def test_an_operation_is_done_at_its_end_whenever_that_was() -> None:
    operation = Operation("o", "delete", NODE, 0.0, "READY")
    assert operation.done is False
    assert replace(operation, end_time=0.0).done is True
    assert (operation.cancel_requested, operation.vacant, operation.delay, operation.held_by) == (
        False, False, 0.0, "",
    )  # fmt: skip
    assert (operation.context.api_version, operation.context.request_id) == ("v2", "")


WRITTEN_BY_THE_SERVICE = {
    "NodeFields": {
        "name",
        "state",
        "healthDescription",
        "createTime",
        "networkEndpoints",
        "health",
        "id",
        "apiVersion",
        "symptoms",
        "queuedResource",
        "multisliceNode",
        "upcomingMaintenance",
    },
    "QueuedResourceFields": {"name", "createTime", "state"},
}
CLIENTS = {"v2": tpu_v2, "v2alpha1": tpu_v2alpha1}
JSON_TYPES = {
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_INT32: int,
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_ENUM: str | int,
}
"""Type of a field -> its type in JSON; that of a timestamp and of a duration is text."""


def settable(typed: type, message: Descriptor) -> list[FieldDescriptor]:
    """The fields of a message that a request may set."""
    output_only = WRITTEN_BY_THE_SERVICE.get(typed.__name__, set())
    return [field for field in message.fields if field.json_name not in output_only]


def differences(typed: type, message: Descriptor, version: str) -> list[str]:
    """The fields that a TypedDict lacks, or has with another type than the message."""
    hints = get_type_hints(typed)
    wrong = []
    for field in settable(typed, message):
        name = "multisliceParams" if field.json_name == MULTISLICE_PARAMS[version] else field.json_name
        hint = hints.get(name)
        if field.is_repeated and get_origin(hint) is list:
            (hint,) = get_args(hint)
        if is_typeddict(hint):
            wrong += differences(hint, field.message_type, version)
        elif hint != json_type(field):
            wrong.append(f"{message.full_name}.{name}: {hint}")
    return wrong


def json_type(field: FieldDescriptor) -> Any:
    if field.message_type is None:
        return JSON_TYPES[field.type]
    return dict[str, str] if field.message_type.GetOptions().map_entry else str


@pytest.mark.parametrize("version", CLIENTS)
def test_every_field_that_a_client_can_set_is_typed(version: str) -> None:
    client = CLIENTS[version]
    assert differences(NodeFields, client.Node.pb().DESCRIPTOR, version) == []
    assert differences(QueuedResourceFields, client.QueuedResource.pb().DESCRIPTOR, version) == []


def test_fields_that_only_the_service_writes_are_ignored() -> None:
    sent = {"name": "n", "state": "READY", "labels": {"a": "b"}, "id": "7"}
    assert node_fields(sent) == {"labels": {"a": "b"}}
