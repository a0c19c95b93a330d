"""Builds the request messages for the Cloud TPU API, and their HTTP form for --dry-run.

- Sends requests of the Cloud TPU API, again where that helps, and fetches every page of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from typing import Protocol, TypeVar

from google.api_core import exceptions, path_template
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2, json_format

from tpuctl.accelerators import accelerator
from tpuctl.cloud.error_mapping import Service, translated
from tpuctl.cloud.request_log import logged
from tpuctl.cloud.tpu.error_mapping import SERVICE, RateLimitError
from tpuctl.cloud.tpu.rules import (
    CLOUD_PLATFORM,
    SSH_KEYS,
    STARTUP_SCRIPT,
    disk_name,
    location,
    node_name,
    queued_resource_name,
    reservation_name,
    scope_urls,
)
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    DataDisk,
    DeleteNode,
    DeleteQueuedResource,
    HttpRequest,
    LastingChange,
    Node,
    NodeId,
    NodeRequest,
    QueuedResourceRequest,
    SshKey,
    StartNode,
    StopNode,
    UpdateNode,
)
from tpuctl.polling import Backoff, retry

HOST = "https://tpu.googleapis.com"

Message = (
    tpu_v2.CreateNodeRequest
    | tpu_v2.DeleteNodeRequest
    | tpu_v2.StopNodeRequest
    | tpu_v2.StartNodeRequest
    | tpu_v2.UpdateNodeRequest
    | tpu_v2.CreateQueuedResourceRequest
    | tpu_v2.DeleteQueuedResourceRequest
)

NODES = "/v2/{parent=projects/*/locations/*}/nodes"
NODE = "/v2/{name=projects/*/locations/*/nodes/*}"
QUEUED_RESOURCES = "/v2/{parent=projects/*/locations/*}/queuedResources"
QUEUED_RESOURCE = "/v2/{name=projects/*/locations/*/queuedResources/*}"

HTTP_RULES = {
    tpu_v2.CreateNodeRequest: ("post", NODES, "node"),
    tpu_v2.DeleteNodeRequest: ("delete", NODE, ""),
    tpu_v2.StopNodeRequest: ("post", f"{NODE}:stop", "*"),
    tpu_v2.StartNodeRequest: ("post", f"{NODE}:start", "*"),
    tpu_v2.UpdateNodeRequest: ("patch", NODE.replace("name", "node.name"), "node"),
    tpu_v2.CreateQueuedResourceRequest: ("post", QUEUED_RESOURCES, "queued_resource"),
    tpu_v2.DeleteQueuedResourceRequest: ("delete", QUEUED_RESOURCE, ""),
}
"""Method, path, and field that is the body: the annotations of google/cloud/tpu/v2/cloud_tpu.proto."""


def message(change: LastingChange) -> Message:
    """Return the message that carries out a change."""
    match change:
        case CreateNode(request):
            parent = location(request.id.project, request.id.zone)
            node = _node(request)
            return tpu_v2.CreateNodeRequest(parent=parent, node_id=request.id.name, node=node)
        case DeleteNode(node_id):
            return tpu_v2.DeleteNodeRequest(name=node_name(node_id))
        case StopNode(node_id):
            return tpu_v2.StopNodeRequest(name=node_name(node_id))
        case StartNode(node_id):
            return tpu_v2.StartNodeRequest(name=node_name(node_id))
        case UpdateNode():
            return _update(change)
        case CreateQueuedResource(queued_request):
            return _create_queued_resource(queued_request)
        case DeleteQueuedResource(queued_resource, force):
            return tpu_v2.DeleteQueuedResourceRequest(name=queued_resource_name(queued_resource), force=force)


def ssh_key_change(node: Node, key: SshKey) -> UpdateNode | None:
    """Return the change that adds a key to a node: the API replaces the metadata as a whole."""
    line, lines = _ssh_key_line(key), _ssh_key_lines(node)
    if line in lines:
        return None
    return UpdateNode(node, metadata={**node.metadata, SSH_KEYS: "\n".join([*lines, line])})


def as_http(message: Message) -> HttpRequest:
    """Return the HTTP form of a message, as the API's own annotations say and its REST client sends it."""
    method, uri, body = HTTP_RULES[type(message)]
    rule = {"method": method, "uri": uri, **({"body": body} if body else {})}
    parts = path_template.transcode([rule], type(message).pb(message))  # type: ignore[no-untyped-call]
    query = json_format.MessageToDict(parts["query_params"])
    parameters = "&".join(f"{name}={_text(value)}" for name, value in sorted(query.items()))
    url = f"{HOST}{parts['uri']}{'?' if parameters else ''}{parameters}"
    return HttpRequest(method.upper(), url, json_format.MessageToDict(parts["body"]) if body else None)


def _node(request: NodeRequest) -> tpu_v2.Node:
    node = tpu_v2.Node(
        runtime_version=request.runtime,
        labels=dict(request.labels),
        metadata=_metadata(request),
        network_config=tpu_v2.NetworkConfig(
            network=request.network,
            subnetwork=request.subnetwork,
            enable_external_ips=request.external_ips,
        ),
        scheduling_config=tpu_v2.SchedulingConfig(spot=request.spot, reserved=request.reserved),
        tags=request.tags,
        data_disks=[_disk(disk, request.id) for disk in request.data_disks],
    )
    if request.topology:
        kind = accelerator(request.accelerator)
        node.accelerator_config = tpu_v2.AcceleratorConfig(type_=kind.api_enum, topology=request.topology)
    else:
        node.accelerator_type = request.accelerator
    if request.service_account or request.scopes:
        scopes = scope_urls(request.scopes) or (CLOUD_PLATFORM,)
        node.service_account = tpu_v2.ServiceAccount(email=request.service_account, scope=scopes)
    if request.secure_boot:
        node.shielded_instance_config = tpu_v2.ShieldedInstanceConfig(enable_secure_boot=True)
    return node


def _metadata(request: NodeRequest) -> dict[str, str]:
    metadata = {**request.metadata, SSH_KEYS: _ssh_key_line(request.ssh_key)}
    if request.startup_script:
        metadata[STARTUP_SCRIPT] = request.startup_script
    return metadata


def _disk(disk: DataDisk, node: NodeId) -> tpu_v2.AttachedDisk:
    modes = tpu_v2.AttachedDisk.DiskMode
    return tpu_v2.AttachedDisk(
        source_disk=disk_name(disk.source, node.project, node.zone),
        mode=modes.READ_ONLY if disk.read_only else modes.READ_WRITE,
    )


def _update(change: UpdateNode) -> tpu_v2.UpdateNodeRequest:
    fields = {"labels": change.labels, "metadata": change.metadata}
    replaced = {name: dict(value) for name, value in fields.items() if value is not None}
    return tpu_v2.UpdateNodeRequest(
        node=tpu_v2.Node(name=node_name(change.node.id), **replaced),
        update_mask=field_mask_pb2.FieldMask(paths=list(replaced)),
    )


def _create_queued_resource(request: QueuedResourceRequest) -> tpu_v2.CreateQueuedResourceRequest:
    project, zone = request.id.project, request.id.zone
    node = _node(request.node)
    del node.scheduling_config  # the queued resource says whether it is spot or reserved
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=location(project, zone), node=node)
    if request.slices > 1:
        spec.multislice_params = tpu_v2.QueuedResource.Tpu.NodeSpec.MultisliceParams(
            node_count=request.slices, node_id_prefix=request.node.id.name
        )
    else:
        spec.node_id = request.node.id.name
    queued_resource = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    if request.node.spot:
        queued_resource.spot = tpu_v2.QueuedResource.Spot()
    if request.reservation:
        queued_resource.reservation_name = reservation_name(request.reservation, project, zone)
    if request.valid_until:
        moment = datetime.fromisoformat(request.valid_until)
        queued_resource.queueing_policy = tpu_v2.QueuedResource.QueueingPolicy(valid_until_time=moment)
    return tpu_v2.CreateQueuedResourceRequest(
        parent=location(project, zone),
        queued_resource_id=request.id.name,
        queued_resource=queued_resource,
        request_id=request.request_id,
    )


def _ssh_key_line(key: SshKey) -> str:
    return f"{key.user}:{key.public_key} {key.user}"


def _ssh_key_lines(node: Node) -> list[str]:
    return [line for line in node.metadata.get(SSH_KEYS, "").split("\n") if line]


def _text(value: object) -> str:
    """A query parameter's value; JSON's words for true and false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


T = TypeVar("T")


class ListPage(Protocol):
    """A page of a list."""

    next_page_token: str


class ListRequest(Protocol):
    """A request for a page of a list."""

    page_token: str


Page = TypeVar("Page", bound=ListPage, covariant=True)


class Pager(Protocol[Page]):
    """A list that Google's client fetches page by page."""

    @property
    def pages(self) -> Iterator[Page]:
        """Each page; the next one is requested when it is needed."""


TIMEOUT = 60.0
"""Of one request: the client has no default timeout, and no default retry."""
RETRY_TIMEOUT = 20.0
RATE_TIMEOUT = 90.0
"""Seconds for which a request is sent again that is refused for its rate: limits are per minute."""
RATE_PAUSES = Backoff(first=2.0, longest=20.0)
TRANSIENT = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
)


def send(
    subject: str,
    call: Callable[..., T],
    request: object,
    *,
    changes: bool = False,
    service: Service = SERVICE,
) -> T:
    """Return the answer to a request that may be sent twice; `subject` names the resource in errors.

    Of one that changes something, ABORTED means that another change came first: its caller reads again.
    """
    on = TRANSIENT if changes else (*TRANSIENT, exceptions.Aborted)

    def repeated() -> T:
        return retry(lambda: _request(call, request), on=on, timeout=RETRY_TIMEOUT)

    return _answer(subject, repeated, service)


def send_list(subject: str, call: Callable[..., Pager[Page]], request: ListRequest) -> list[Page]:
    """Return every page of a list; each is a request of its own."""

    @wraps(call)
    def first_page(request: object, **options: object) -> Page:
        return next(call(request, **options).pages)

    pages = [send(subject, first_page, request)]
    while token := pages[-1].next_page_token:
        request.page_token = token
        pages.append(send(subject, first_page, request))
    return pages


def send_once(subject: str, call: Callable[..., T], request: object, service: Service = SERVICE) -> T:
    """Return the answer to a request that takes effect once at most: one refused for its rate had none."""
    return _answer(subject, lambda: _request(call, request), service)


def _answer(subject: str, work: Callable[[], T], service: Service) -> T:
    """Return the answer to a request, sent again while it is refused for its rate; raises tpuctl's errors."""

    def attempt() -> T:
        with translated(subject, service):
            return work()

    return retry(attempt, on=RateLimitError, timeout=RATE_TIMEOUT, backoff=RATE_PAUSES)


def _request(call: Callable[..., T], request: object) -> T:
    """Send a request, and log it with the resource that it is about."""
    version = "v2alpha1." if "v2alpha1" in type(request).__module__ else ""
    method = version + getattr(call, "__name__", "").title().replace("_", "")
    return logged(
        "gRPC", f"{method} {_resource(request)}", lambda: call(request, retry=None, timeout=TIMEOUT)
    )


def _resource(request: object) -> str:
    if isinstance(request, Mapping):
        return str(request.get("name", ""))
    node = getattr(request, "node", None)  # what is updated has its name there
    return str(getattr(request, "name", "") or getattr(request, "parent", "") or getattr(node, "name", ""))
