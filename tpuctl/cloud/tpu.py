"""The Cloud TPU API, through Google's own client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.api_core import exceptions, retry
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2, json_format

from tpuctl import clock
from tpuctl.cloud.error_mapping import from_status, translated
from tpuctl.nodes import HttpRequest, Node, NodeRequest

TIMEOUT = 60.0
RETRY = retry.Retry(
    predicate=retry.if_exception_type(exceptions.ServiceUnavailable, exceptions.DeadlineExceeded),
    initial=0.2,
    maximum=5,
    timeout=20,
)
"""For calls that may be sent twice: the client has no default retry and no default timeout."""
HOST = "https://tpu.googleapis.com"


@dataclass(frozen=True)
class Operation:
    """A long-running operation that was started."""

    name: str
    what: str


@dataclass(frozen=True)
class Listing:
    """Nodes of one zone or of all, and the zones that did not answer."""

    nodes: tuple[Node, ...]
    unreachable: tuple[str, ...]


class TpuApi:
    """The calls that tpuctl makes, for one project; raises tpuctl's errors."""

    def __init__(self, client: tpu_v2.TpuClient, project: str) -> None:
        self._client = client
        self.project = project

    def nodes(self, zone: str = "-") -> Listing:
        """Return the nodes in a zone, or in every zone."""
        nodes: list[Node] = []
        unreachable: list[str] = []
        with translated(f"the nodes of {self._where(zone)}"):
            pages = self._client.list_nodes(parent=self._parent(zone), retry=RETRY, timeout=TIMEOUT).pages
            for page in pages:
                nodes += [_node(one) for one in page.nodes]
                unreachable += page.unreachable
        return Listing(tuple(nodes), tuple(unreachable))

    def node(self, zone: str, name: str) -> Node:
        """Return one node; raises NotFoundError only when the API says that it is not there."""
        with translated(f"Node '{name}' in {zone}"):
            request = f"{self._parent(zone)}/nodes/{name}"
            return _node(self._client.get_node(name=request, retry=RETRY, timeout=TIMEOUT))

    def create(self, request: NodeRequest) -> Operation:
        """Start to create a node. Never tried again by itself: the request has no id, look first."""
        what = f"Node '{request.name}' ({request.accelerator}) in {request.zone}"
        with translated(what):
            future = self._client.create_node(
                parent=self._parent(request.zone),
                node_id=request.name,
                node=_message(request),
                retry=None,
                timeout=TIMEOUT,
            )
        return Operation(future.operation.name, what)

    def delete(self, node: Node) -> Operation:
        """Start to delete a node."""
        what = f"Node '{node.name}' in {node.zone}"
        with translated(what):
            future = self._client.delete_node(name=_name(node), retry=RETRY, timeout=TIMEOUT)
        return Operation(future.operation.name, what)

    def update_metadata(self, node: Node, metadata: Mapping[str, str]) -> Operation:
        """Start to replace a node's metadata: the API replaces the whole map."""
        what = f"Node '{node.name}' in {node.zone}"
        with translated(what):
            future = self._client.update_node(
                node=tpu_v2.Node(name=_name(node), metadata=dict(metadata)),
                update_mask=field_mask_pb2.FieldMask(paths=["metadata"]),
                retry=RETRY,
                timeout=TIMEOUT,
            )
        return Operation(future.operation.name, what)

    def finished(self, operation: Operation) -> bool:
        """Tell whether an operation is over; raises its error when it failed."""
        with translated(operation.what):
            state = self._client.get_operation({"name": operation.name}, retry=RETRY, timeout=TIMEOUT)
        if state.done and state.HasField("error"):
            error, details = state.error, state.error.details
            raise from_status(operation.what, error.code, error.message, _reason(details), details)
        return bool(state.done)

    def host_keys(self, node: Node) -> dict[int, str]:
        """Return each worker's public ed25519 host key (base64), as it wrote it into its guest attributes."""
        with translated(f"The host keys of node '{node.name}'"):
            answer = self._client.get_guest_attributes(
                {"name": _name(node), "query_path": "hostkeys/"}, retry=RETRY, timeout=TIMEOUT
            )
        keys = {}
        for worker, attributes in enumerate(answer.guest_attributes):
            for item in attributes.query_value.items:
                if item.key == "ssh-ed25519":
                    keys[worker] = str(item.value)
        return keys

    def accelerator_types(self, zone: str) -> list[str]:
        """Return the accelerator types that a zone offers."""
        with translated(f"The accelerator types of {self._where(zone)}"):
            parent = self._parent(zone)
            found = self._client.list_accelerator_types(parent=parent, retry=RETRY, timeout=TIMEOUT)
            return [one.type_ for one in found]

    def runtimes(self, zone: str) -> list[str]:
        """Return the runtime versions that a zone offers."""
        with translated(f"The runtime versions of {self._where(zone)}"):
            parent = self._parent(zone)
            found = self._client.list_runtime_versions(parent=parent, retry=RETRY, timeout=TIMEOUT)
            return [one.version for one in found]

    def _parent(self, zone: str) -> str:
        return f"projects/{self.project}/locations/{zone}"

    def _where(self, zone: str) -> str:
        return f"project {self.project}" if zone == "-" else f"zone {zone}"


def create_request(request: NodeRequest) -> HttpRequest:
    """Return the HTTP form of a create, for --dry-run."""
    parent = f"{HOST}/v2/projects/{request.project}/locations/{request.zone}"
    body = json_format.MessageToDict(tpu_v2.Node.pb(_message(request)))
    return HttpRequest("POST", f"{parent}/nodes?nodeId={request.name}", body)


def delete_request(node: Node) -> HttpRequest:
    """Return the HTTP form of a delete, for --dry-run."""
    return HttpRequest("DELETE", f"{HOST}/v2/{_name(node)}")


def _name(node: Node) -> str:
    return f"projects/{node.project}/locations/{node.zone}/nodes/{node.name}"


def _message(request: NodeRequest) -> tpu_v2.Node:
    message = tpu_v2.Node(
        accelerator_type=request.accelerator,
        runtime_version=request.runtime,
        labels=dict(request.labels),
        metadata=dict(request.metadata),
        network_config=tpu_v2.NetworkConfig(
            network=request.network,
            subnetwork=request.subnetwork or "",
            enable_external_ips=request.external_ips,
        ),
        scheduling_config=tpu_v2.SchedulingConfig(spot=request.spot),
    )
    if request.service_account:
        scope = "https://www.googleapis.com/auth/cloud-platform"
        message.service_account = tpu_v2.ServiceAccount(email=request.service_account, scope=[scope])
    return message


def _node(message: Any) -> Node:
    _, project, _, zone, _, name = message.name.split("/")
    return Node(
        name=name,
        project=project,
        zone=zone,
        uid=str(message.id),
        state=tpu_v2.Node.State(message.state).name,
        accelerator=message.accelerator_type,
        runtime=message.runtime_version,
        created=clock.iso(message.create_time) if message.create_time else "",
        spot=message.scheduling_config.spot or message.scheduling_config.preemptible,
        health=tpu_v2.Node.Health(message.health).name if message.health else "",
        addresses=tuple(_addresses(message)),
        labels=dict(message.labels),
        metadata=dict(message.metadata),
    )


def _addresses(message: Any) -> Iterator[str]:
    for endpoint in message.network_endpoints:
        yield endpoint.access_config.external_ip or endpoint.ip_address


def _reason(details: Any) -> str:
    """The reason in the ErrorInfo among an operation's packed details."""
    from google.rpc import error_details_pb2  # noqa: PLC0415  only when an operation failed

    info = error_details_pb2.ErrorInfo()
    return next((info.reason for one in details if one.Unpack(info)), "")
