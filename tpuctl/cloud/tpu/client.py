"""Creates, lists and deletes nodes and queued resources through Google's own client of the Cloud TPU API."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport as CommonTransport
from google.longrunning import operations_pb2

from tpuctl import clock, images
from tpuctl.accelerators import Accelerator
from tpuctl.cloud.error_mapping import Service
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.tpu import api_requests
from tpuctl.cloud.tpu.api_requests import HOST, send, send_list, send_once
from tpuctl.cloud.tpu.error_mapping import CREATING, SERVICE, operation_error
from tpuctl.cloud.tpu.messages import (
    enum_name,
    read_guest_attribute,
    read_host_keys,
    read_hostnames,
    read_node,
    read_queued_resource,
)
from tpuctl.cloud.tpu.project_metadata import uses_os_login
from tpuctl.cloud.tpu.rules import (
    EVERY_ZONE,
    location,
    node_name,
    project_name,
    queued_resource_name,
    zone_of,
)
from tpuctl.errors import ConfigError, NotFoundError, StateError, TpuctlError
from tpuctl.nodes import (
    CLOUD_TPU,
    Change,
    CreateNode,
    CreateQueuedResource,
    Creation,
    DeleteNode,
    DeleteQueuedResource,
    History,
    HttpRequest,
    Maintenance,
    Node,
    NodeId,
    NodeList,
    QueuedResource,
    QueuedResourceId,
    QueuedResourceList,
    SimulateMaintenance,
    SshKey,
    StartNode,
    StopNode,
    UpdateNode,
    joined,
)
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from google.cloud import tpu_v2alpha1


class CloudTpu:
    """The Cloud TPU API as a Provider, for one project."""

    def __init__(
        self,
        client: tpu_v2.TpuClient,
        project: str,
        read_project_metadata: Callable[[], Mapping[str, str]] = dict,
        first_contact: Callable[[Node], Mapping[int, str]] | None = None,
    ) -> None:
        """Take `first_contact`, which returns the keys of hosts that have published none."""
        self._client = client
        self._project = project
        self._first_contact = first_contact
        self._read_project_metadata = read_project_metadata
        self._hostnames: dict[NodeId, Mapping[int, str]] = {}
        self._hostname_lock = threading.Lock()

    def node_id(self, zone: str, name: str) -> NodeId:
        """Return the identity of a node of this project."""
        return NodeId(CLOUD_TPU, self._project, zone, name)

    def list_nodes(self, zone: str | None = None) -> NodeList:
        """Return the nodes of a zone, or of every zone."""
        subject = f"the nodes of zone {zone}" if zone else f"the nodes of project {self._project}"
        request = tpu_v2.ListNodesRequest(parent=self._location(zone or EVERY_ZONE))
        pages = send_list(subject, self._client.list_nodes, request)
        return NodeList(
            nodes=tuple(read_node(message) for page in pages for message in page.nodes),
            unreachable=tuple(zone_of(name) for page in pages for name in page.unreachable),
        )

    def get_node(self, node: NodeId) -> Node:
        """Return a node; raises NotFoundError, also when another node has the name now."""
        if node.slices:
            return joined(node.name, values(fanout(self.get_node, node.slices)))
        subject, request = _subject(node), tpu_v2.GetNodeRequest(name=node_name(node))
        current = read_node(send(subject, self._client.get_node, request))
        if node.uid and current.id.uid != node.uid:
            raise NotFoundError(
                f"{subject} was deleted: its name is another node's now.", hint="'tpuctl ls' shows that node."
            )
        return current

    def queued_resource_id(self, zone: str, name: str) -> QueuedResourceId:
        """Return the identity of a queued resource of this project."""
        return QueuedResourceId(CLOUD_TPU, self._project, zone, name)

    def list_queued_resources(self, zone: str | None = None) -> QueuedResourceList:
        """Return the queued resources of a zone, or of every zone."""
        place = f"zone {zone}" if zone else f"project {self._project}"
        request = tpu_v2.ListQueuedResourcesRequest(parent=self._location(zone or EVERY_ZONE))
        pages = send_list(f"the queued resources of {place}", self._client.list_queued_resources, request)
        return QueuedResourceList(
            tuple(read_queued_resource(message) for page in pages for message in page.queued_resources),
            unreachable=tuple(zone_of(name) for page in pages for name in page.unreachable),
        )

    def get_queued_resource(self, queued_resource: QueuedResourceId) -> QueuedResource:
        """Return a queued resource; raises NotFoundError."""
        request = tpu_v2.GetQueuedResourceRequest(name=queued_resource_name(queued_resource))
        return read_queued_resource(
            send(_queued_subject(queued_resource), self._client.get_queued_resource, request)
        )

    def check(self, creation: Creation) -> None:
        """Raise UsageError for a creation that Google would refuse, by the rules that it documents."""
        from tpuctl.cloud.tpu.rules import check_creation  # noqa: PLC0415  few commands create

        check_creation(creation)

    def begin(self, change: Change) -> Operation:
        """Start to carry out a change; CreateNode is sent once, as it has no id to be repeated by."""
        subject = _subject_of(change)
        if isinstance(change, SimulateMaintenance):
            return self.operation(subject, simulate_maintenance(self._client, subject, change))
        request = api_requests.message(change)
        call = self._call(request)
        service = CREATING if isinstance(change, Creation) else SERVICE
        if isinstance(change, CreateNode):
            future = send_once(subject, call, request, service)
        else:
            future = send(subject, call, request, changes=True, service=service)
        return self.operation(subject, future.operation.name, service)

    def creations(self, node: NodeId) -> Mapping[str, Operation]:
        """Return the operations that create or created a node of this name."""
        from tpuctl.cloud.tpu.past_changes import list_operations  # noqa: PLC0415  see `check`

        subject, parent = _subject(node), location(node.project, node.zone)
        operations, _ = list_operations(self._client, subject, parent)
        names = [operation.name for operation in operations if _creates(operation, node)]
        return {name: self.operation(subject, name, CREATING) for name in names}

    def history(self, name: str | None, zone: str | None = None) -> History:
        """Return the changes of what is or was called `name`, in a zone or in every zone."""
        from tpuctl.cloud.tpu.past_changes import read_history  # noqa: PLC0415  few commands tell of the past

        return read_history(self._client, self._project, name, zone)

    def maintenance(self, zone: str | None = None) -> Mapping[str, Maintenance]:
        """Return the upcoming maintenance of nodes by their uids; v2alpha1 alone has it."""
        return read_maintenance(self._client, self._location(zone or EVERY_ZONE))

    def http_request(self, change: Change) -> HttpRequest:
        """Return the HTTP form of a change."""
        if isinstance(change, SimulateMaintenance):
            return simulation_request(change)
        return api_requests.as_http(api_requests.message(change))

    def ssh_key_change(self, node: Node, key: SshKey) -> UpdateNode | None:
        """Return the change that adds a key to a node's metadata; None for one that is there."""
        changes = (api_requests.ssh_key_change(part, key) for part in node.parts)
        return next(filter(None, changes), None)

    def ignores_ssh_keys(self, metadata: Mapping[str, str]) -> bool:
        """Whether OS Login is on, by this metadata of a node and that of the project."""
        return uses_os_login(metadata, self._project_metadata)

    @cached_property
    def _project_metadata(self) -> Mapping[str, str]:
        try:
            return self._read_project_metadata()
        except TpuctlError:  # the Compute Engine API may be off, or not for this account
            return {}

    def host_keys(self, node: NodeId) -> Mapping[int, str]:
        """Return each worker's host key, which it writes into its guest attributes at boot."""
        if node.slices:
            keys = values(fanout(self.host_keys, node.slices))
            numbers = range(len(keys) * node.slice_hosts)
            places = {worker: divmod(worker, node.slice_hosts) for worker in numbers}
            return {worker: keys[part][host] for worker, (part, host) in places.items() if host in keys[part]}
        try:
            attributes = self._guest_attributes(node)
        except (ConfigError, StateError):  # a policy or a role that is missing
            if self._first_contact is None:
                raise
            return self._first_contact(self.get_node(node))
        self._hostnames[node] = read_hostnames(attributes)
        published = read_host_keys(attributes)
        if self._first_contact is None:
            return published
        return {**self._first_contact(self.get_node(node)), **published}

    def hostname(self, node: NodeId, worker: int) -> str | None:
        """Return the name of a worker's instance, None while it has not published it.

        What came with the host keys is not asked for again.
        """
        node, worker = node.host(worker)
        with self._hostname_lock:
            if worker not in self._hostnames.get(node, {}):
                self._hostnames[node] = read_hostnames(self._guest_attributes(node))
            return self._hostnames[node].get(worker)

    def list_zones(self) -> list[str]:
        """Return the zones of the API; some that a project may use are missing there."""
        zones, request = list[str](), {"name": project_name(self._project)}
        while True:
            page = send(f"The zones of project {self._project}", self._client.list_locations, request)
            zones += [place.location_id for place in page.locations]
            if not page.next_page_token:
                return zones
            request["page_token"] = page.next_page_token

    def host_notes(self, node: NodeId, namespace: str, key: str) -> Mapping[int, str]:
        """Return the guest attribute `NAMESPACE/KEY` of each worker that has one."""
        request = tpu_v2.GetGuestAttributesRequest(name=node_name(node), query_path=f"{namespace}/")
        return read_guest_attribute(self._read_attributes(node, request), key)

    def list_accelerator_types(self, zone: str) -> list[str]:
        """Return the accelerator types that a zone offers."""
        request = tpu_v2.ListAcceleratorTypesRequest(parent=self._location(zone))
        call = self._client.list_accelerator_types
        pages = send_list(f"The accelerator types of zone {zone}", call, request)
        return [offer.type_ for page in pages for offer in page.accelerator_types]

    def list_runtimes(self, zone: str) -> list[str]:
        """Return the runtime versions that a zone offers."""
        request = tpu_v2.ListRuntimeVersionsRequest(parent=self._location(zone))
        call = self._client.list_runtime_versions
        pages = send_list(f"The runtime versions of zone {zone}", call, request)
        return [offer.version for page in pages for offer in page.runtime_versions]

    def default_runtime(self, accelerator: Accelerator, framework: str, offered: list[str]) -> str:
        """Return the newest image for a framework."""
        return images.default_runtime(accelerator, framework, offered)

    def operation(self, subject: str, name: str, service: Service = SERVICE) -> Operation:
        """Return the handle of the long-running operation called `name`."""

        def is_done() -> bool:
            state = send(subject, self._client.get_operation, {"name": name})
            if state.done and state.HasField("error"):
                raise operation_error(subject, state.error, service)
            return bool(state.done)

        return Operation(subject, is_done)

    def _call(self, request: api_requests.Message) -> Callable[..., Future]:
        """Return the client's method that sends a message: CreateNodeRequest is sent by create_node."""
        words = re.findall("[A-Z][a-z]+", type(request).__name__.removesuffix("Request"))
        call: Callable[..., Future] = getattr(self._client, "_".join(words).lower())
        return call

    def _guest_attributes(self, node: NodeId) -> tpu_v2.GetGuestAttributesResponse:
        """Return all guest attributes: no document says in which namespace a host's name is."""
        return self._read_attributes(node, tpu_v2.GetGuestAttributesRequest(name=node_name(node)))

    def _read_attributes(
        self, node: NodeId, request: tpu_v2.GetGuestAttributesRequest
    ) -> tpu_v2.GetGuestAttributesResponse:
        """Return guest attributes; none where the API finds none: no host has published any yet.

        Compute Engine answers so for a namespace that a host has not written ("The resource 'hostkeys/' of
        type 'Guest Attribute' was not found.": googlecloudsdk/command_lib/compute/ssh_utils.py). Raises
        NotFoundError for a node that does not exist.
        """
        try:
            return send(_subject(node), self._client.get_guest_attributes, request)
        except NotFoundError:
            self.get_node(node)
            return tpu_v2.GetGuestAttributesResponse()

    def _location(self, zone: str) -> str:
        return location(self._project, zone)


def _creates(operation: operations_pb2.Operation, node: NodeId) -> bool:
    metadata = tpu_v2.OperationMetadata.pb(tpu_v2.OperationMetadata())
    is_of_node = operation.metadata.Unpack(metadata) and metadata.target == node_name(node)
    return bool(is_of_node and metadata.verb == "create")


class Future(Protocol):
    """A long-running operation, as Google's client returns it."""

    operation: operations_pb2.Operation


def _subject(node: NodeId) -> str:
    return f"Node '{node.name}' in {node.zone}"


def _queued_subject(queued_resource: QueuedResourceId) -> str:
    return f"Queued resource '{queued_resource.name}' in {queued_resource.zone}"


def _subject_of(change: Change) -> str:
    """Return how messages name the resource that a change is about."""
    match change:
        case CreateNode(request):
            return f"Node '{request.id.name}' ({request.accelerator}) in {request.id.zone}"
        case DeleteNode(node) | StopNode(node) | StartNode(node) | SimulateMaintenance(node):
            return _subject(node)
        case UpdateNode(existing):
            return _subject(existing.id)
        case CreateQueuedResource(queued_request):
            return _queued_subject(queued_request.id)
        case DeleteQueuedResource(queued_resource):
            return _queued_subject(queued_resource)


# Reads upcoming maintenance and simulates it: v2alpha1 of the Cloud TPU API alone offers that in Python.


def read_maintenance(client: tpu_v2.TpuClient, parent: str) -> Mapping[str, Maintenance]:
    """Return the upcoming maintenance of the nodes of a location by their uids."""
    from google.cloud import tpu_v2alpha1  # noqa: PLC0415  36 ms, and few commands need it

    alpha = _alpha_client(client)
    request = tpu_v2alpha1.ListNodesRequest(parent=parent)
    pages = send_list("The upcoming maintenance", alpha.list_nodes, request)
    plain = [tpu_v2alpha1.Node.pb(node) for page in pages for node in page.nodes]
    types = tpu_v2alpha1.UpcomingMaintenance
    return {
        str(node.id): Maintenance(
            kind=enum_name(types.MaintenanceType, node.upcoming_maintenance.type_),
            status=enum_name(types.MaintenanceStatus, node.upcoming_maintenance.maintenance_status),
            begins=_time(node.upcoming_maintenance.window_start_time),
            ends=_time(node.upcoming_maintenance.window_end_time),
            can_reschedule=node.upcoming_maintenance.can_reschedule,
        )
        for node in plain
        if node.HasField("upcoming_maintenance")
    }


def _time(text: str) -> str:
    """Return a time, which this message has as RFC 3339; empty for any other text."""
    try:
        return clock.iso(datetime.fromisoformat(text))
    except ValueError:
        return ""


def simulate_maintenance(client: tpu_v2.TpuClient, subject: str, change: SimulateMaintenance) -> str:
    """Begin a simulated maintenance and return its operation's name; `subject` names the node in errors."""
    from google.cloud import tpu_v2alpha1  # noqa: PLC0415  see above

    request = tpu_v2alpha1.SimulateMaintenanceEventRequest(
        name=node_name(change.node), worker_ids=[str(change.worker)]
    )
    future = send(subject, _alpha_client(client).simulate_maintenance_event, request, changes=True)
    return str(future.operation.name)


def simulation_request(change: SimulateMaintenance) -> HttpRequest:
    """Return the HTTP form of a simulated maintenance: google/cloud/tpu/v2alpha1/cloud_tpu.proto."""
    url = f"{HOST}/v2alpha1/{node_name(change.node)}:simulateMaintenanceEvent"
    return HttpRequest("POST", url, {"workerIds": [str(change.worker)]})


def _alpha_client(client: tpu_v2.TpuClient) -> tpu_v2alpha1.TpuClient:
    """Return a client over the connection of the other version's client, with its credentials."""
    from google.cloud import tpu_v2alpha1  # noqa: PLC0415  see above
    from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport  # noqa: PLC0415

    channel = cast(CommonTransport, client.transport).grpc_channel
    return tpu_v2alpha1.TpuClient(transport=TpuGrpcTransport(channel=channel))
