"""A provider in memory with several zones, and commands that take turns by a seed or are killed."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.flows.nodes.memory_provider import MemoryProvider, node, queued_resource
from tpuctl.cloud.provider import Operation
from tpuctl.errors import ConflictError, NotFoundError, StateError, StockoutError
from tpuctl.nodes import (
    Change,
    CreateNode,
    CreateQueuedResource,
    DeleteNode,
    DeleteQueuedResource,
    Node,
    NodeId,
    NodeList,
    NodeRequest,
    NodeState,
    QueuedResource,
    QueuedResourceId,
    QueuedResourceList,
    QueuedResourceRequest,
    QueueState,
)

STEPS = 5000
"""More turns than any schedule takes: commands that wait for each other for ever fail."""


class Killed(BaseException):
    """The end of a command by kill -9: none of its code runs any more."""


@dataclass
class Command:
    """A command in a thread of its own, which waits for its turn before each request."""

    name: str
    work: Callable[[], object]
    result: object = None
    error: BaseException | None = None
    is_over: bool = False
    is_killed: bool = False
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    pause: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def run(self) -> None:
        self.turn.acquire()
        try:
            if not self.is_killed:
                self.result = self.work()
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.pause.release()

    def wait_for_turn(self) -> None:
        """Called before each request, in the command's thread."""
        if self.is_killed:
            raise Killed
        self.pause.release()
        self.turn.acquire()
        if self.is_killed:
            raise Killed

    def step(self) -> None:
        """Let it run until its next request or its end."""
        self.turn.release()
        self.pause.acquire()


def take_turns(commands: list[Command], seed: int, *, kills: float = 0.0) -> None:
    """Run all commands until each is over; `kills` is the chance that a turn ends its command."""
    draw = random.Random(seed)
    threads = {command.name: threading.Thread(target=command.run, daemon=True) for command in commands}
    by_thread.update(zip(threads.values(), commands, strict=True))
    for thread in threads.values():
        thread.start()
    for _ in range(STEPS):
        running = [command for command in commands if not command.is_over]
        if not running:
            return
        command = draw.choice(running)
        command.is_killed = command.is_killed or draw.random() < kills
        command.step()
    raise AssertionError(f"seed {seed}: the commands wait for each other")


by_thread: dict[threading.Thread, Command] = {}


def next_turn() -> None:
    """Wait for the turn of the command of this thread, if it is one of those that take turns."""
    command = by_thread.get(threading.current_thread())
    if command:
        command.wait_for_turn()


Place = tuple[str, str]
"""Zone and name."""


class ZonedProvider(MemoryProvider):
    """Each request takes a turn, in which a draw may also move a queued resource or a node on."""

    def __init__(self, zones: Mapping[str, int], seed: int = 0) -> None:
        super().__init__()
        self.capacity = dict(zones)
        """Zone -> number of nodes for which there is capacity."""
        self.placed: dict[Place, Node] = {}
        self.queues: dict[Place, QueuedResource] = {}
        self.requests: dict[Place, QueuedResourceRequest] = {}
        self.failed: set[str] = set()
        self.lost: list[Place] = []
        """What was READY when it was deleted, in order."""
        self._draw = random.Random(seed)
        self._clock = itertools.count(1)
        self._begun: dict[str, tuple[Place, str]] = {}

    def _turn(self) -> None:
        next_turn()
        for place in list(self.placed):
            self._move_node(place)
        for place in list(self.queues):
            self._move_queue(place)

    def _move_node(self, place: Place) -> None:
        current = self.placed[place]
        if current.state is NodeState.CREATING and self._draw.random() < 0.5:
            state = NodeState.READY
            self.placed[place] = replace(current, state=state, provider_state=state)

    def _move_queue(self, place: Place) -> None:
        queued = self.queues[place]
        if self._draw.random() < 0.5:
            return
        if queued.state is QueueState.WAITING and self._free(place[0]):
            self._set(place, QueueState.PROVISIONING)
            request = self.requests[place].node
            self.placed[place] = self._new_node(request, queued=queued.name)
        elif queued.state is QueueState.PROVISIONING and self.placed[place].state is NodeState.READY:
            self._set(place, QueueState.ACTIVE)
        elif queued.state is QueueState.DELETING:
            self.placed.pop(place, None)
            del self.queues[place]

    def _set(self, place: Place, state: QueueState) -> None:
        self.queues[place] = replace(self.queues[place], state=state, provider_state=state)

    def _free(self, zone: str) -> bool:
        return sum(place[0] == zone for place in self.placed) < self.capacity[zone]

    def _new_node(self, request: NodeRequest, queued: str = "") -> Node:
        moment = next(self._clock)
        return node(
            request.id.name,
            state=NodeState.CREATING,
            id=replace(request.id, uid=f"uid-{moment}"),
            accelerator=request.accelerator,
            metadata={request.ssh_key.public_key: ""},
            labels=request.labels,
            queued_resource=queued,
            created_at=float(moment),
            provider_state=NodeState.CREATING,
        )

    def list_nodes(self, zone: str | None = None) -> NodeList:
        self._turn()
        listed = tuple(item for item in self.placed.values() if zone in (None, item.zone))
        return NodeList(listed, self.unreachable)

    def list_queued_resources(self, zone: str | None = None) -> QueuedResourceList:
        self._turn()
        listed = tuple(item for item in self.queues.values() if zone in (None, item.zone))
        return QueuedResourceList(listed, self.unreachable)

    def get_node(self, node: NodeId) -> Node:
        self._turn()
        current = self.placed.get((node.zone, node.name))
        if current is None or node.uid not in ("", current.id.uid):
            raise NotFoundError(f"{node.name} does not exist.")
        return current

    def get_queued_resource(self, queued_resource: QueuedResourceId) -> QueuedResource:
        self._turn()
        current = self.queues.get((queued_resource.zone, queued_resource.name))
        if current is None:
            raise NotFoundError(f"{queued_resource.name} does not exist.")
        return current

    def creations(self, node: NodeId) -> Mapping[str, Operation]:
        self._turn()
        own = (name for name, (place, _) in self._begun.items() if place == (node.zone, node.name))
        return {name: Operation(name, self._is_created(name)) for name in own}

    def begin(self, change: Change) -> Operation:
        self._turn()
        match change:
            case CreateNode(request):
                return self._create_node(request)
            case CreateQueuedResource(queued):
                return self._create_queued(queued)
            case DeleteNode(node_id):
                return self._delete_node(node_id)
            case DeleteQueuedResource(queued_id, force):
                return self._delete_queued((queued_id.zone, queued_id.name), force=force)
        return super().begin(change)

    def _create_node(self, request: NodeRequest) -> Operation:
        place = (request.id.zone, request.id.name)
        if place in self.placed or place in self.queues:
            raise ConflictError("It exists.")
        operation = f"operation-{next(self._clock)}"
        if not self._free(place[0]):
            self.failed.add(operation)
        else:
            self.placed[place] = self._new_node(request)
        self._begun[operation] = (place, self.placed[place].id.uid if place in self.placed else "")
        return Operation(f"Node '{place[1]}'", self._is_created(operation))

    def _is_created(self, operation: str) -> Callable[[], bool]:
        def is_done() -> bool:
            self._turn()
            if operation in self.failed:
                raise StockoutError("No more capacity.")
            place, uid = self._begun[operation]
            current = self.placed.get(place)
            return current is None or current.id.uid != uid or current.state is NodeState.READY

        return is_done

    def _create_queued(self, request: QueuedResourceRequest) -> Operation:
        place = (request.id.zone, request.id.name)
        if place in self.placed or place in self.queues:
            raise ConflictError("It exists.")
        self.requests[place] = request
        self.queues[place] = queued_resource(
            id=request.id, nodes=(request.node.id,), labels=request.node.labels,
            created_at=float(next(self._clock)), provider_state=QueueState.WAITING,
        )  # fmt: skip
        return Operation(place[1], lambda: True)

    def _delete_node(self, node_id: NodeId) -> Operation:
        place = (node_id.zone, node_id.name)
        current = self.placed.get(place)
        if current is None or node_id.uid not in ("", current.id.uid):
            raise NotFoundError("It does not exist.")
        self._forget(place)
        return Operation(node_id.name, lambda: True)

    def _delete_queued(self, place: Place, *, force: bool) -> Operation:
        queued = self.queues.get(place)
        if queued is None:
            raise NotFoundError("It does not exist.")
        if queued.state is QueueState.DELETING or (not force and place in self.placed):
            raise StateError("Not in this state.")
        self._forget(place)
        self._set(place, QueueState.DELETING)
        return Operation(place[1], lambda: True)

    def _forget(self, place: Place) -> None:
        current = self.placed.pop(place, None)
        if current and current.state is NodeState.READY:
            self.lost.append(place)

    def list_accelerator_types(self, zone: str) -> list[str]:
        return ["v2-8", "v3-8"]
