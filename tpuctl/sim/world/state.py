"""The state that the parts of the simulated Cloud TPU share: the stored records, and how they change.

- Defines the states of nodes and queued resources: allowed calls, and the states that may follow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace

from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.records import Hosts
from tpuctl.sim.settings import Profile
from tpuctl.sim.state import Database, RecordTable
from tpuctl.sim.world import resources
from tpuctl.sim.world.api_errors import Status, api_error
from tpuctl.sim.world.change_notifier import ChangeNotifier
from tpuctl.sim.world.injected_faults import NO_FAULT, OperationFault
from tpuctl.sim.world.resources import (
    DEFAULT_CONTEXT,
    Node,
    NodeFields,
    Operation,
    QueuedResource,
    RequestContext,
)

MAINTENANCE = ("simulate maintenance event", "perform maintenance")

NODE_ALLOWED: dict[str, frozenset[str]] = {
    # that a node can be deleted while it is being created is ours: no source was found
    "CREATING": frozenset({"delete", "preempt"}),
    "READY": frozenset({"delete", "preempt", "update", "stop", "get guest attributes", *MAINTENANCE}),
    "STOPPING": frozenset(),
    "STOPPED": frozenset({"delete", "update", "start"}),
    "STARTING": frozenset(),
    "DELETING": frozenset(),
    "REPAIRING": frozenset({"delete", "preempt"}),
    "PREEMPTED": frozenset({"delete"}),
    "TERMINATED": frozenset({"delete"}),
}
"""State of a node -> calls that it allows, besides get and list."""

LOST = frozenset({"PREEMPTED", "TERMINATED"})
"""States in which only the record of a node is left, until it is deleted."""

VACANT = LOST | {"STOPPED"}
"""States in which a node uses no capacity."""


@dataclass(frozen=True)
class Transition:
    """The state of a node during and after a long-running operation; None: unchanged, or deleted."""

    method: str
    during: str | None
    after: str | None


NODE_TRANSITIONS: dict[str, Transition] = {
    "create": Transition("CreateNode", "CREATING", "READY"),
    "delete": Transition("DeleteNode", "DELETING", None),
    "update": Transition("UpdateNode", None, None),
    "stop": Transition("StopNode", "STOPPING", "STOPPED"),
    "start": Transition("StartNode", "STARTING", "READY"),
    "simulateMaintenanceEvent": Transition("SimulateMaintenanceEvent", None, None),
    # that a node under maintenance is REPAIRING is ours: no source was found
    "performMaintenance": Transition("PerformMaintenance", "REPAIRING", "READY"),
}
"""Verb of an operation, as its metadata shows it -> its method and states."""

CANCELLABLE = frozenset({"create"})
"""Verbs whose operation on a node can be cancelled; others run to their end (which operations Google's API
can cancel is not documented)."""

QUEUED_RESOURCE_ALLOWED: dict[str, frozenset[str]] = {
    "CREATING": frozenset({"delete", "force delete"}),
    "ACCEPTED": frozenset({"delete", "force delete"}),
    "WAITING_FOR_RESOURCES": frozenset({"delete", "force delete"}),
    "PROVISIONING": frozenset({"force delete"}),
    "ACTIVE": frozenset({"force delete", "reset", "perform maintenance"}),
    "SUSPENDING": frozenset({"force delete"}),
    "SUSPENDED": frozenset({"delete", "force delete", "reset"}),
    "FAILED": frozenset({"delete", "force delete", "reset"}),
    "DELETING": frozenset(),
}
"""State of a queued resource -> calls that it allows, besides get and list. Delete is as the
comment on `force` in google/cloud/tpu/v2/cloud_tpu.proto says: without it in ACCEPTED, FAILED and SUSPENDED,
and whenever there are no nodes (as in CREATING and WAITING_FOR_RESOURCES). In which states a queued resource
can be reset is ours: no source was found."""

QUEUED_RESOURCE_NEXT: dict[str, frozenset[str]] = {
    "CREATING": frozenset({"ACCEPTED", "DELETING"}),
    "ACCEPTED": frozenset({"WAITING_FOR_RESOURCES", "PROVISIONING", "FAILED", "DELETING"}),
    "WAITING_FOR_RESOURCES": frozenset({"PROVISIONING", "FAILED", "DELETING"}),
    "PROVISIONING": frozenset({"ACTIVE", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDING", "DELETING"}),
    "ACTIVE": frozenset({"SUSPENDING", "DELETING"}),
    "SUSPENDING": frozenset({"SUSPENDED", "ACCEPTED", "DELETING"}),
    "SUSPENDED": frozenset({"SUSPENDING", "DELETING"}),
    "FAILED": frozenset({"SUSPENDING", "DELETING"}),
    "DELETING": frozenset(),
}
"""State of a queued resource -> the states that may follow. SUSPENDING leads back to ACCEPTED in a reset."""

SERVING = frozenset({"READY", "STOPPING", "STOPPED", "STARTING", "REPAIRING"})
"""States of the nodes of an ACTIVE queued resource."""


MAX_ENDED = 1_000
"""Ended operations that can still be read; how long Google keeps them was not found."""


class Operations:
    """All operations that run, and those that have ended, but for deleted and the oldest ones.

    They are on disk and outlive a restart.
    """

    def __init__(self, database: Database, profile: Profile) -> None:
        self._database = database
        self._records = RecordTable(database, "operation", Operation)
        self._clock = profile.clock
        self._end_events: dict[str, asyncio.Event] = {}
        stored = self._records.all()
        self._running = {operation.target: operation.name for operation in stored if not operation.done}
        self._by_request = {
            _request_key(operation): operation.name for operation in stored if operation.context.request_id
        }
        ended = sorted(
            (operation for operation in stored if operation.done),
            key=lambda operation: operation.end_time or 0.0,
        )
        self._ended = deque(operation.name for operation in ended)

    def get(self, name: str) -> Operation:
        """Return the operation called `name`; raises NOT_FOUND."""
        operation = self._records.get(name)
        if operation is None:
            resources.require_collection(name, "operations")
            raise api_error("not_found", name=name)
        return operation

    def all(self, prefix: str) -> list[Operation]:
        """Return the operations whose names start with `prefix`."""
        return self._records.all(prefix)

    def running(self) -> list[Operation]:
        """Return the operations that have not ended."""
        return [self.get(name) for name in self._running.values()]

    def find(self, name: str) -> Operation | None:
        """Return the operation called `name`, or None once it has been deleted."""
        return self._records.get(name)

    def find_repeated(self, verb: str, target: str, context: RequestContext) -> Operation | None:
        """Return the operation that an earlier request with the same id began, or None."""
        name = self._by_request.get((verb, target, context.request_id))
        return self._records.get(name) if name else None

    def running_on(self, target: str) -> Operation | None:
        """Return the operation on this node or queued resource that has not ended: at most one."""
        name = self._running.get(target)
        return self.get(name) if name else None

    async def wait(self, name: str, seconds: float | None) -> Operation:
        """Return the operation when it has ended, or as it is after `seconds`; raises NOT_FOUND."""
        if not self.get(name).done:
            end = self._end_events.setdefault(name, asyncio.Event())
            try:
                await asyncio.wait_for(end.wait(), seconds)
            except TimeoutError:
                pass  # the caller sees that it is not done
        return self.get(name)

    def delete(self, name: str) -> None:
        """Remove the record of an ended operation; raises NOT_FOUND, FAILED_PRECONDITION."""
        if not self.get(name).done:
            raise api_error("operation_runs", name=name)
        self._remove(name)

    def begin(
        self,
        verb: str,
        target: Node | QueuedResource,
        *,
        changes: NodeFields | None = None,
        workers: tuple[int, ...] = (),
        fault: OperationFault = NO_FAULT,
        context: RequestContext = DEFAULT_CONTEXT,
        vacant: bool = False,
    ) -> Operation:
        """Store a new operation on a target that has none running."""
        now = self._clock()
        operation = Operation(
            name=resources.new_operation(resources.parse(target.name).parent, now),
            verb=verb,
            target=target.name,
            create_time=now,
            before=target.state,
            changes=changes or {},
            workers=workers,
            injected_error=fault.error,
            delay=fault.delay,
            held_by=fault.held_by,
            context=context,
            vacant=vacant,
        )
        self._records.put(operation)
        self._database.on_rollback(lambda: self._running.pop(target.name, None))
        self._running[target.name] = operation.name
        if context.request_id:
            self._by_request[_request_key(operation)] = operation.name
        return operation

    def request_cancel(self, operation: Operation) -> Operation:
        """Store that a client has cancelled the operation."""
        cancelled = replace(operation, cancel_requested=True)
        self._records.put(cancelled)
        return cancelled

    def end(
        self,
        operation: Operation,
        *,
        result: Node | QueuedResource | None = None,
        error: Status | None = None,
    ) -> None:
        """Store the operation's result or error, and wake the callers of `wait`."""
        current = self.get(operation.name)  # a cancel may have been requested since
        ended = replace(current, end_time=self._clock(), error=error)
        if isinstance(result, QueuedResource):
            self._records.put(replace(ended, queued=result))
        else:
            self._records.put(replace(ended, result=result))
        self._database.on_rollback(lambda: self._running.update({operation.target: operation.name}))
        del self._running[operation.target]
        self._end_events.pop(operation.name, asyncio.Event()).set()
        self._ended.append(operation.name)
        while len(self._ended) > MAX_ENDED:
            self._remove(self._ended.popleft())

    def _remove(self, name: str) -> None:
        """Remove a record, unless it has been deleted already, or its end was rolled back."""
        operation = self._records.get(name)
        if operation and operation.done:
            self._by_request.pop(_request_key(operation), None)
            self._records.remove(name)


def _request_key(operation: Operation) -> tuple[str, str, str]:
    return operation.verb, operation.target, operation.context.request_id


@dataclass(frozen=True)
class State:
    """Everything that a service of the world reads and changes; `load` builds it once.

    Nodes and queued resources are read from their shelves and changed by the methods here, which also write
    the event log and wake whoever waits for a change.
    """

    database: Database
    profile: Profile
    hosts: Hosts
    faults: FaultRegistry
    events: Events
    nodes: RecordTable[Node]
    queued_resources: RecordTable[QueuedResource]
    operations: Operations
    notifier: ChangeNotifier

    @classmethod
    def load(
        cls, database: Database, profile: Profile, hosts: Hosts, faults: FaultRegistry, events: Events
    ) -> State:
        """Read the records of the database."""
        return cls(
            database,
            profile,
            hosts,
            faults,
            events,
            nodes=RecordTable(database, "node", Node),
            queued_resources=RecordTable(database, "queued resource", QueuedResource),
            operations=Operations(database, profile),
            notifier=ChangeNotifier(profile),
        )

    def save_node(self, node: Node) -> None:
        """Store a node, in place of the one of the same name."""
        before = self.nodes.get(node.name)
        self.nodes.put(node)
        if before is None or before.state != node.state:
            self.events.note("transition", node.state, node.name)
        self.notifier.notify()

    def remove_node(self, name: str) -> None:
        """Remove a node's record."""
        self.nodes.remove(name)
        self._note_transition("DELETED", name)

    def save_queued_resource(self, queued: QueuedResource) -> None:
        """Store a queued resource that has entered a state, in place of the one of the same name."""
        self.queued_resources.put(queued)
        self._note_transition(queued.state, queued.name)

    def remove_queued_resource(self, name: str) -> None:
        """Remove a queued resource's record."""
        self.queued_resources.remove(name)
        self._note_transition("DELETED", name)

    def _note_transition(self, state: str, name: str) -> None:
        self.events.note("transition", state, name)
        self.notifier.notify()
