"""A provider that is no API at all: what the flows need of a second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tpuctl.accelerators import Accelerator, accelerator
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.ssh import CommandResult
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.nodes import HttpRequest, Node, NodeId, NodeList, NodeRequest, NodeState, SshKey

ZONE = "us-central1-b"


class MemoryProvider:
    """Nodes in a dict; `on_create` may fail before or after the node is there."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.unreachable: tuple[str, ...] = ()
        self.created: list[NodeRequest] = []
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
        current = self.nodes.get(node.name)
        if current is None or node.uid not in ("", current.id.uid):
            raise NotFoundError(f"{node.name} does not exist.")
        return current

    def create_node(self, request: NodeRequest) -> Operation:
        self.on_create(request)
        return Operation(request.id.name, lambda: True)

    def delete_node(self, node: NodeId) -> Operation:
        del self.nodes[self.get_node(node).name]
        return Operation(node.name, lambda: True)

    def has_ssh_key(self, node: Node, key: SshKey) -> bool:
        return key.public_key in node.metadata

    def add_ssh_key(self, node: Node, key: SshKey) -> Operation:
        self.nodes[node.name] = replace(node, metadata={**node.metadata, key.public_key: ""})
        return Operation(node.name, lambda: True)

    def host_keys(self, node: NodeId) -> Mapping[int, str]:
        return {worker: f"host key {worker}" for worker in range(len(self.get_node(node).addresses))}

    def list_accelerator_types(self, zone: str) -> list[str]:
        return ["v2-8", "v3-8"] if zone == ZONE else []

    def list_runtimes(self, zone: str) -> list[str]:
        return ["image-1", "image-2"]

    def default_runtime(self, accelerator: Accelerator, framework: str, offered: list[str]) -> str:
        return offered[-1]

    def create_request(self, request: NodeRequest) -> HttpRequest:
        return HttpRequest("CREATE", request.id.name)

    def delete_request(self, node: NodeId) -> HttpRequest:
        return HttpRequest("DELETE", node.name)

    def ssh_key_request(self, node: Node, key: SshKey) -> HttpRequest:
        return HttpRequest("ADD KEY", node.name, key.public_key)


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
        addresses=("10.0.0.1",),
        labels={"managed-by": "tpuctl", "tpuctl-user": "ada"},
    )
    return replace(ready, **fields)  # type: ignore[arg-type]
