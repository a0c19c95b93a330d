"""A provider that is no API at all: what the flows need of a second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tpuctl.accelerators import Accelerator, accelerator
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.ssh import CommandResult
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.nodes import (
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
    NodeRequest,
    NodeState,
    PastChange,
    QueuedResource,
    QueuedResourceId,
    QueuedResourceList,
    QueueState,
    SimulateMaintenance,
    SshKey,
    StartNode,
    StopNode,
    UpdateNode,
    joined,
    owner_label,
)

ZONE = "us-central1-b"
CREATED = 1767225600.0
"""2026-01-01, when the nodes were created."""


class MemoryProvider:
    """Nodes in a dict; `on_create` may fail before or after the node is there."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.queue: dict[str, QueuedResource] = {}
        self.unreachable: tuple[str, ...] = ()
        self.created: list[NodeRequest] = []
        self.past_changes: list[PastChange] = []
        self.announced: dict[str, Maintenance] = {}
        self.on_create: Callable[[NodeRequest], None] = self.add

    def add(self, request: NodeRequest) -> None:
        """Let a node exist, READY, as a request asks."""
        self.created.append(request)
        uid = f"uid-{len(self.created)}"
        hosts = accelerator(request.accelerator).hosts
        self.nodes[request.id.name] = node(
            request.id.name,
            id=replace(request.id, uid=uid),
            accelerator=request.accelerator,
            addresses=tuple(f"10.0.0.{host}" for host in range(hosts)),
            metadata={request.ssh_key.public_key: ""},
            labels=request.labels,
        )

    def node_id(self, zone: str, name: str) -> NodeId:
        return NodeId("memory", "p", zone, name)

    def list_nodes(self, zone: str | None = None) -> NodeList:
        nodes = [node for node in self.nodes.values() if zone in (None, node.zone)]
        return NodeList(tuple(nodes), self.unreachable)

    def get_node(self, node: NodeId) -> Node:
        if node.slices:
            return joined(node.name, [self.get_node(part) for part in node.slices])
        current = self.nodes.get(node.name)
        if current is None or node.uid not in ("", current.id.uid):
            raise NotFoundError(f"{node.name} does not exist.")
        return current

    def queued_resource_id(self, zone: str, name: str) -> QueuedResourceId:
        return QueuedResourceId("memory", "p", zone, name)

    def list_queued_resources(self, zone: str | None = None) -> QueuedResourceList:
        queued = [queued for queued in self.queue.values() if zone in (None, queued.zone)]
        return QueuedResourceList(tuple(queued), self.unreachable)

    def get_queued_resource(self, queued_resource: QueuedResourceId) -> QueuedResource:
        if queued_resource.name not in self.queue:
            raise NotFoundError(f"{queued_resource.name} does not exist.")
        return self.queue[queued_resource.name]

    def check(self, creation: Creation) -> None:
        """Any creation may be sent."""

    def begin(self, change: Change) -> Operation:
        match change:
            case CreateNode(request):
                self.on_create(request)
                return Operation(f"Node '{request.id.name}'", lambda: True)
            case DeleteNode(existing):
                del self.nodes[self.get_node(existing).name]
                return Operation(f"Node '{existing.name}'", lambda: True)
            case UpdateNode(existing, labels, metadata):
                changed = {"labels": labels, "metadata": metadata}
                fields = {name: value for name, value in changed.items() if value is not None}
                self.nodes[existing.name] = replace(existing, **fields)  # type: ignore[arg-type]
                return Operation(f"Node '{existing.name}'", lambda: True)
            case StopNode(existing) | StartNode(existing):
                state = NodeState.STOPPED if isinstance(change, StopNode) else NodeState.READY
                self.nodes[existing.name] = replace(
                    self.get_node(existing), state=state, provider_state=f"its {state}"
                )
                return Operation(f"Node '{existing.name}'", lambda: True)
            case DeleteQueuedResource(queued_resource):
                self.get_queued_resource(queued_resource)
                for made in self.queue.pop(queued_resource.name).nodes:
                    self.nodes.pop(made.name, None)
                return Operation(queued_resource.name, lambda: True)
        raise NotImplementedError(change)

    def creations(self, node: NodeId) -> Mapping[str, Operation]:
        return {
            str(number): Operation(f"Node '{request.id.name}'", lambda: True)
            for number, request in enumerate(self.created)
            if request.id.name == node.name
        }

    def history(self, name: str | None, zone: str | None = None) -> History:
        changes = (change for change in self.past_changes if name in (None, change.name))
        return History(tuple(changes), self.unreachable)

    def maintenance(self, zone: str | None = None) -> Mapping[str, Maintenance]:
        return self.announced

    def ssh_key_change(self, node: Node, key: SshKey) -> UpdateNode | None:
        if key.public_key in node.metadata:
            return None
        return UpdateNode(node, metadata={**node.metadata, key.public_key: ""})

    def ignores_ssh_keys(self, metadata: Mapping[str, str]) -> bool:
        return metadata.get("keys") == "ignored"

    def host_keys(self, node: NodeId) -> Mapping[int, str]:
        return {worker: f"host key {worker}" for worker in range(len(self.get_node(node).addresses))}

    def hostname(self, node: NodeId, worker: int) -> str | None:
        return f"{node.name}-{worker}"

    def list_zones(self) -> list[str]:
        return [ZONE]

    def host_notes(self, node: NodeId, namespace: str, key: str) -> Mapping[int, str]:
        return {}

    def list_accelerator_types(self, zone: str) -> list[str]:
        return ["v2-8", "v3-8"] if zone == ZONE else []

    def list_runtimes(self, zone: str) -> list[str]:
        return ["image-1", "image-2"]

    def default_runtime(self, accelerator: Accelerator, framework: str, offered: list[str]) -> str:
        return offered[-1]

    def http_request(self, change: Change) -> HttpRequest:
        return HttpRequest(type(change).__name__, _subject(change))


def _subject(change: Change) -> str:
    match change:
        case CreateNode(request) | CreateQueuedResource(request):
            return request.id.name
        case DeleteNode(node_id) | StopNode(node_id) | StartNode(node_id) | SimulateMaintenance(node_id):
            return node_id.name
        case UpdateNode(existing):
            return existing.name
        case DeleteQueuedResource(queued_resource):
            return queued_resource.name


class MemorySsh:
    """Hosts that run any command, for a provider without hosts; raises `error` instead where there is one."""

    user = "ada"

    def __init__(self, error: TpuctlError | None = None) -> None:
        self.reached: list[tuple[str, int, str]] = []
        self.error = error

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[MemorySsh]:
        if self.error:
            raise self.error
        self.reached.append((node.name, worker, host_key))
        yield self

    def run(self, argv: Sequence[str]) -> CommandResult:
        return CommandResult(0, "", "")


def node(name: str = "n1", state: NodeState = NodeState.READY, **fields: object) -> Node:
    """Return a v3-8 of Ada's."""
    ready = Node(
        id=NodeId("memory", "p", ZONE, name, "uid-0"),
        state=state,
        provider_state=f"its {state}",
        accelerator="v3-8",
        runtime="image-2",
        created="2026-01-01T00:00:00Z",
        created_at=CREATED,
        addresses=("10.0.0.1",),
        labels={"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada")},
    )
    return replace(ready, **fields)  # type: ignore[arg-type]


def queued_resource(state: QueueState = QueueState.WAITING, **fields: object) -> QueuedResource:
    """Return Ada's queued resource, which makes a v3-8 called n1."""
    waiting = QueuedResource(
        id=QueuedResourceId("memory", "p", ZONE, "q1"),
        state=state,
        provider_state=f"its {state}",
        nodes=(NodeId("memory", "p", ZONE, "n1"),),
        accelerator="v3-8",
        runtime="image-2",
        created="2026-01-01T00:00:00Z",
        labels={"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada")},
    )
    return replace(waiting, **fields)  # type: ignore[arg-type]
