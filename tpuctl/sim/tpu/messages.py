"""Converts the world's records to protobuf messages of one version of the API.

- Converts JSON between versions of the API; the world uses v2 with v2alpha1's own fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import ModuleType
from weakref import WeakKeyDictionary

from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.rpc import (
    error_details_pb2,  # noqa: F401  registers the details that a Status carries
    status_pb2,
)

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.sim.records import GuestAttribute
from tpuctl.sim.world import Node, Operation, QueuedResource, Reservation, Status
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.resources import MessageFields

NETWORK_PORT = 8470
"""The port of TensorFlow's gRPC server on a TPU host."""


class Messages:
    """Builds messages of the client package `module` (`tpu_v2`) for API version `version` (`v2`).

    A node's message is built once for each of its states: records are frozen.
    """

    def __init__(self, module: ModuleType, version: str) -> None:
        self._module = module
        self._version = version
        self._nodes: WeakKeyDictionary[Node, Message] = WeakKeyDictionary()

    def new(self, message_type: str, **fields: object) -> Message:
        """Return a plain protobuf message of this API version by the name of its type."""
        message: Message = getattr(self._module, message_type).pb()(**fields)
        return message

    def node(self, node: Node) -> Message:
        """Return a Node; callers share it and must not change it."""
        message = self._nodes.get(node)
        if message is None:
            # a version of the API that lacks a field or an enum's name leaves it out
            fields = _node_json(node) | {"apiVersion": API_VERSIONS[self._version]}
            message = ParseDict(fields, self.new("Node"), ignore_unknown_fields=True)
            self._nodes[node] = message
        return message

    def operation(self, operation: Operation) -> operations_pb2.Operation:
        """Return a google.longrunning.Operation with this API version's metadata and result."""
        message: operations_pb2.Operation = operations_pb2.Operation(name=operation.name, done=operation.done)
        metadata = ParseDict(_operation_json(operation, self._version), self.new("OperationMetadata"))
        message.metadata.Pack(metadata)
        if operation.error:
            message.error.CopyFrom(status_message(operation.error))
        elif operation.done:
            message.response.Pack(self._result(operation))
        return message

    def queued_resource(self, queued: QueuedResource) -> Message:
        """Return a QueuedResource."""
        fields = from_v2(self._version, _queued_json(queued))
        return ParseDict(fields, self.new("QueuedResource"), ignore_unknown_fields=True)

    def reservation(self, reservation: Reservation, used: int) -> Message:
        """Return a Reservation, which only v2alpha1 has."""
        fields = _reservation_json(reservation, used)
        return ParseDict(fields, self.new("Reservation"))

    def accelerator_type(self, parent: str, accelerator: Accelerator) -> Message:
        """Return an AcceleratorType."""
        generation = availability.CONFIG_TYPES[accelerator.generation]
        config = self.new("AcceleratorConfig", type_=generation, topology=accelerator.topology)
        name = f"{parent}/acceleratorTypes/{accelerator.type}"
        return self.new("AcceleratorType", name=name, type_=accelerator.type, accelerator_configs=[config])

    def runtime_version(self, parent: str, version: str) -> Message:
        """Return a RuntimeVersion."""
        return self.new("RuntimeVersion", name=f"{parent}/runtimeVersions/{version}", version=version)

    def guest_attributes(self, path: str, attributes: Iterable[GuestAttribute]) -> Message:
        """Return the GuestAttributes of one worker."""
        items = [
            {"namespace": attribute.namespace, "key": attribute.key, "value": attribute.value}
            for attribute in attributes
        ]
        fields = {"queryPath": path, "queryValue": {"items": items}}
        return ParseDict(fields, self.new("GuestAttributes"))

    def _result(self, operation: Operation) -> Message:
        if operation.queued and (operation.verb != "delete" or self._version in SHOWS_DELETED):
            return self.queued_resource(operation.queued)
        return self.node(operation.result) if operation.result else empty_pb2.Empty()


def location(project: str, zone: str) -> locations_pb2.Location:
    """Return a google.cloud.location.Location."""
    return locations_pb2.Location(
        name=f"projects/{project}/locations/{zone}",
        location_id=zone,
        labels={"cloud.googleapis.com/region": accelerators.region(zone)},
    )


def status_message(status: Status) -> status_pb2.Status:
    """Return a google.rpc.Status, details packed."""
    return ParseDict(status_json(status), status_pb2.Status())


def status_json(status: Status) -> MessageFields:
    """Return a google.rpc.Status in its JSON form."""
    return {"code": int(status.code), "message": status.message, "details": list(status.details)}


def _node_json(node: Node) -> MessageFields:
    return {
        **node.spec,
        "name": node.name,
        "id": node.uid,
        "state": node.state,
        "health": node.health,
        "createTime": _timestamp(node.create_time),
        "networkEndpoints": [
            _endpoint_json(address, node.external_ips)
            for worker, address in enumerate(node.addresses)
            if worker not in node.unlisted
        ],
        "queuedResource": node.queued_resource,
        "multisliceNode": node.multislice,
        **({"upcomingMaintenance": node.maintenance} if node.maintenance else {}),
    }


def _endpoint_json(address: str, external: bool) -> MessageFields:
    """The external address is the internal one: there is only loopback here."""
    endpoint = {"ipAddress": address, "port": NETWORK_PORT}
    return {**endpoint, "accessConfig": {"externalIp": address}} if external else endpoint


def _queued_json(queued: QueuedResource) -> MessageFields:
    """The data of a state is empty, but for the error of a FAILED one."""
    error = status_json(queued.error) if queued.error else None
    name = queued.state.split("_")[0].lower() + "Data"
    state: MessageFields = {"state": queued.state}
    if queued.state in STATES_WITH_DATA:
        state[name] = {"error": error} if error else {}
    if queued.initiator:
        state["stateInitiator"] = queued.initiator
    return {
        **queued.spec,
        "name": queued.name,
        "createTime": _timestamp(queued.create_time),
        "state": state,
    }


def _reservation_json(reservation: Reservation, used: int) -> MessageFields:
    interval = {"startTime": _timestamp(reservation.start), "endTime": _timestamp(reservation.end)}
    return {
        "name": reservation.name,
        "standard": {
            "size": reservation.size,
            "capacityUnits": reservation.units,
            "resourceType": reservation.accelerator_type,
            "interval": interval,
            "usage": {"total": used},
        },
        "state": "ACTIVE",
    }


def _operation_json(operation: Operation, version: str) -> MessageFields:
    fields: MessageFields = {
        "createTime": _timestamp(operation.create_time),
        "target": operation.target,
        "verb": operation.verb,
        "cancelRequested": operation.cancel_requested,
        "apiVersion": version,
    }
    return fields if operation.end_time is None else fields | {"endTime": _timestamp(operation.end_time)}


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


API_VERSIONS = {"v2": "V2", "v2alpha1": "V2_ALPHA1"}
"""The api_version that a node shows: v2alpha1 has no V2."""

MULTISLICE_PARAMS = {"v2": "multisliceParams", "v2alpha1": "multiNodeParams"}
"""The parameters of several nodes in a NodeSpec, the same in all but name (and v2alpha1's workloadType)."""

SHOWS_DELETED = frozenset({"v2alpha1"})
"""Versions in which the result of deleting a queued resource is the queued resource; in v2 it is empty."""

STATES_WITH_DATA = frozenset(
    {
        "CREATING",
        "ACCEPTED",
        "PROVISIONING",
        "FAILED",
        "DELETING",
        "ACTIVE",
        "SUSPENDING",
        "SUSPENDED",
    }
)
"""States of a queued resource with a message of their own in `state_data`."""


def to_v2(version: str, queued: Mapping[str, object]) -> MessageFields:
    """Return a queued resource sent in this version as the world reads it."""
    return _renamed(queued, MULTISLICE_PARAMS[version], MULTISLICE_PARAMS["v2"])


def from_v2(version: str, queued: Mapping[str, object]) -> MessageFields:
    """Return a queued resource of the world as this version shows it."""
    return _renamed(queued, MULTISLICE_PARAMS["v2"], MULTISLICE_PARAMS[version])


def _renamed(queued: Mapping[str, object], old: str, new: str) -> MessageFields:
    tpu = queued.get("tpu")
    node_specs = tpu.get("nodeSpec") if isinstance(tpu, Mapping) else None
    if not node_specs:
        return dict(queued)
    renamed = [
        {new if key == old else key: value for key, value in node_spec.items()} for node_spec in node_specs
    ]
    return {**queued, "tpu": {"nodeSpec": renamed}}
