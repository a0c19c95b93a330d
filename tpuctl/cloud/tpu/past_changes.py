"""Reads what the Cloud TPU API remembers of changes: its operations."""

from __future__ import annotations

from datetime import UTC

from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from tpuctl import accelerators, clock
from tpuctl.cloud.tpu.api_requests import send
from tpuctl.cloud.tpu.error_mapping import CREATING, SERVICE, operation_error
from tpuctl.cloud.tpu.messages import read_node
from tpuctl.cloud.tpu.rules import EVERY_ZONE, location, parse_node_name, parse_queued_resource_name, zone_of
from tpuctl.errors import ConfigError, DeadlineError, NotFoundError, UsageError
from tpuctl.nodes import History, Node, NodeId, PastChange, QueuedResourceId
from tpuctl.parallel import fanout, values


def list_operations(
    client: tpu_v2.TpuClient, subject: str, parent: str, *, partially: bool = False
) -> tuple[list[operations_pb2.Operation], list[str]]:
    """Return every operation of a location, and the zones that did not answer.

    `partially` lists what other zones have; without it one silent zone is an error.
    """
    operations, unreachable = list[operations_pb2.Operation](), list[str]()
    request: dict[str, object] = {"name": parent, "return_partial_success": partially}
    while True:
        page = send(subject, client.list_operations, request)
        operations += page.operations
        unreachable += map(zone_of, page.unreachable)
        if not page.next_page_token:
            return operations, unreachable
        request["page_token"] = page.next_page_token


def read_history(client: tpu_v2.TpuClient, project: str, name: str | None, zone: str | None) -> History:
    """Return the changes of nodes and queued resources called `name`, or of all, oldest first.

    In every zone, by one list of them all; where the service refuses that, by a list of each known zone.
    """
    subject = f"The operations on '{name}'" if name else "The operations"
    parent = location(project, zone or EVERY_ZONE)
    try:
        operations, unreachable = list_operations(client, subject, parent, partially=not zone)
    except (UsageError, NotFoundError, ConfigError):
        if zone:
            raise
        operations, unreachable = _list_each_zone(client, subject, project)
    changes = (_past_change(operation, name) for operation in operations)
    ordered = sorted((change for change in changes if change), key=lambda change: change.began)
    return History(tuple(ordered), tuple(sorted(set(unreachable))))


def _list_each_zone(
    client: tpu_v2.TpuClient, subject: str, project: str
) -> tuple[list[operations_pb2.Operation], list[str]]:
    """A zone that the project may not use has none of its operations."""
    results = fanout(
        lambda zone: list_operations(client, subject, location(project, zone))[0], accelerators.zones()
    )
    if not any(result.value is not None for result in results):
        values(results)
    operations = [operation for result in results for operation in result.value or ()]
    return operations, [result.item for result in results if isinstance(result.error, DeadlineError)]


def _past_change(operation: operations_pb2.Operation, name: str | None) -> PastChange | None:
    metadata = tpu_v2.OperationMetadata.pb(tpu_v2.OperationMetadata())
    known = _unpack(operation.metadata, metadata)
    target_name = metadata.target.rpartition("/")[2]
    if not known or name not in (None, target_name):
        return None
    target = _target(metadata.target)
    if target is None:
        return None
    kind = "Node" if isinstance(target, NodeId) else "Queued resource"
    failed = operation.HasField("error")
    subject = f"{kind} '{target_name}' in {target.zone}"
    service = CREATING if metadata.verb == "create" else SERVICE
    return PastChange(
        zone=target.zone,
        name=target_name,
        verb=metadata.verb,
        began=_time(metadata.create_time),
        ended=_time(metadata.end_time),
        of_queued_resource=isinstance(target, QueuedResourceId),
        error=operation_error(subject, operation.error, service) if failed else None,
        node=_result(operation.response) if operation.done and not failed else None,
    )


def _target(name: str) -> NodeId | QueuedResourceId | None:
    for parse in (lambda text: parse_node_name(text, ""), parse_queued_resource_name):
        try:
            return parse(name)
        except ValueError:
            continue
    return None


def _result(response: any_pb2.Any) -> Node | None:
    node = tpu_v2.Node()
    plain = tpu_v2.Node.pb(node)
    return read_node(node) if _unpack(response, plain) and plain.name else None


def _unpack(packed: any_pb2.Any, message: Message) -> bool:
    """Read a packed message of any version of the API: fields have the same numbers in all of them."""
    if packed.type_url.rpartition(".")[2] != message.DESCRIPTOR.name:
        return False
    try:
        message.ParseFromString(packed.value)
    except DecodeError:
        return False
    return True


def _time(moment: Timestamp) -> str:
    """Return a time of a message; empty for one that is not set."""
    return clock.iso(moment.ToDatetime(UTC)) if moment.seconds else ""
