"""The types of the fields that requests may set, compared with the messages of Google's own clients."""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from google.cloud import tpu_v2, tpu_v2alpha1
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tpuctl.sim.tpu.messages import MULTISLICE_PARAMS
from tpuctl.sim.world.resources import NodeFields, QueuedResourceFields, node_fields

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
