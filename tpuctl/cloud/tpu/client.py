"""Creates, lists and deletes nodes through Google's own client of the Cloud TPU API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from google.api_core import exceptions
from google.cloud import tpu_v2

from tpuctl.accelerators import Accelerator
from tpuctl.cloud.error_mapping import translated
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.tpu import api_requests, runtimes
from tpuctl.cloud.tpu.error_mapping import SERVICE, operation_error
from tpuctl.cloud.tpu.messages import read_host_keys, read_node
from tpuctl.cloud.tpu.names import EVERY_ZONE, location, node_name, zone_of
from tpuctl.errors import NotFoundError
from tpuctl.nodes import CLOUD_TPU, HttpRequest, Node, NodeId, NodeList, NodeRequest, SshKey
from tpuctl.polling import retry

T = TypeVar("T")
Page = TypeVar("Page", covariant=True)

TIMEOUT = 60.0
"""Of one request: the client has no default timeout, and no default retry."""
RETRY_TIMEOUT = 20.0
TRANSIENT = (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded)


class CloudTpu:
    """The Cloud TPU API as a Provider, for one project."""

    def __init__(self, client: tpu_v2.TpuClient, project: str) -> None:
        self._client = client
        self._project = project

    def node_id(self, zone: str, name: str) -> NodeId:
        """Return the identity of a node of this project."""
        return NodeId(CLOUD_TPU, self._project, zone, name)

    def list_nodes(self, zone: str | None = None) -> NodeList:
        """Return the nodes of a zone, or of every zone."""
        subject = f"the nodes of zone {zone}" if zone else f"the nodes of project {self._project}"
        request = tpu_v2.ListNodesRequest(parent=self._location(zone or EVERY_ZONE))
        pages = _send(subject, _all_pages(self._client.list_nodes), request)
        return NodeList(
            nodes=tuple(read_node(message) for page in pages for message in page.nodes),
            unreachable=tuple(zone_of(name) for page in pages for name in page.unreachable),
        )

    def get_node(self, node: NodeId) -> Node:
        """Return a node; raises NotFoundError, also when another node has the name now."""
        subject, request = _subject(node), tpu_v2.GetNodeRequest(name=node_name(node))
        current = read_node(_send(subject, self._client.get_node, request))
        if node.uid and current.id.uid != node.uid:
            raise NotFoundError(f"{subject} was deleted: its name is another node's now.")
        return current

    def create_node(self, request: NodeRequest) -> Operation:
        """Start to create a node; sent once, since the request has no id by which it could be repeated."""
        subject = f"Node '{request.id.name}' ({request.accelerator}) in {request.id.zone}"
        with translated(subject, SERVICE):
            future = self._client.create_node(api_requests.create(request), retry=None, timeout=TIMEOUT)
        return self.operation(subject, future.operation.name)

    def delete_node(self, node: NodeId) -> Operation:
        """Start to delete a node."""
        subject = _subject(node)
        future = _send(subject, self._client.delete_node, api_requests.delete(node))
        return self.operation(subject, future.operation.name)

    def has_ssh_key(self, node: Node, key: SshKey) -> bool:
        """Tell whether a key is in a node's metadata."""
        return api_requests.ssh_key_line(key) in api_requests.ssh_key_lines(node)

    def add_ssh_key(self, node: Node, key: SshKey) -> Operation:
        """Start to add a key to a node's metadata."""
        subject = _subject(node.id)
        future = _send(subject, self._client.update_node, api_requests.add_ssh_key(node, key))
        return self.operation(subject, future.operation.name)

    def host_keys(self, node: NodeId) -> Mapping[int, str]:
        """Return each worker's host key, which it writes into its guest attributes at boot."""
        request = tpu_v2.GetGuestAttributesRequest(name=node_name(node), query_path="hostkeys/")
        subject = f"The host keys of node '{node.name}'"
        return read_host_keys(_send(subject, self._client.get_guest_attributes, request))

    def list_accelerator_types(self, zone: str) -> list[str]:
        """Return the accelerator types that a zone offers."""
        request = tpu_v2.ListAcceleratorTypesRequest(parent=self._location(zone))
        call = _all_pages(self._client.list_accelerator_types)
        pages = _send(f"The accelerator types of zone {zone}", call, request)
        return [offer.type_ for page in pages for offer in page.accelerator_types]

    def list_runtimes(self, zone: str) -> list[str]:
        """Return the runtime versions that a zone offers."""
        request = tpu_v2.ListRuntimeVersionsRequest(parent=self._location(zone))
        call = _all_pages(self._client.list_runtime_versions)
        pages = _send(f"The runtime versions of zone {zone}", call, request)
        return [offer.version for page in pages for offer in page.runtime_versions]

    def default_runtime(self, accelerator: Accelerator, framework: str, offered: list[str]) -> str:
        """Return the newest image for a framework."""
        return runtimes.default_runtime(accelerator, framework, offered)

    def create_request(self, request: NodeRequest) -> HttpRequest:
        """Return the HTTP form of a create."""
        return api_requests.as_http(api_requests.create(request))

    def delete_request(self, node: NodeId) -> HttpRequest:
        """Return the HTTP form of a delete."""
        return api_requests.as_http(api_requests.delete(node))

    def ssh_key_request(self, node: Node, key: SshKey) -> HttpRequest:
        """Return the HTTP form of the update that adds a key."""
        return api_requests.as_http(api_requests.add_ssh_key(node, key))

    def operation(self, subject: str, name: str) -> Operation:
        """Return the handle of the long-running operation called `name`."""

        def is_done() -> bool:
            state = _send(subject, self._client.get_operation, {"name": name})
            if state.done and state.HasField("error"):
                raise operation_error(subject, state.error)
            return bool(state.done)

        return Operation(subject, is_done)

    def _location(self, zone: str) -> str:
        return location(self._project, zone)


def _subject(node: NodeId) -> str:
    return f"Node '{node.name}' in {node.zone}"


def _send(subject: str, call: Callable[..., T], request: object) -> T:
    """Return the answer to a request that may be sent twice; `subject` names the resource in errors."""
    with translated(subject, SERVICE):
        return retry(lambda: call(request, retry=None, timeout=TIMEOUT), on=TRANSIENT, timeout=RETRY_TIMEOUT)


class Pager(Protocol[Page]):
    """A list that Google's client fetches page by page."""

    @property
    def pages(self) -> Iterator[Page]:
        """Each page; the next one is requested when it is needed."""


def _all_pages(call: Callable[..., Pager[Page]]) -> Callable[..., list[Page]]:
    """Return the call that fetches every page of a list, not the first alone."""
    return lambda request, **options: list(call(request, **options).pages)
