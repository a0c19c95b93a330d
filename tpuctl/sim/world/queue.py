"""The life of a queued resource, step by step, and the calls that begin one or return its record.

It becomes ACTIVE in `_provision`, and SUSPENDING in `_watch` when one of its nodes is preempted or deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tpuctl.sim.world import resources
from tpuctl.sim.world.api_errors import ApiError, Code, Status, api_error
from tpuctl.sim.world.capacity import capacity
from tpuctl.sim.world.capacity.capacity import Capacity
from tpuctl.sim.world.injected_faults import operation_fault, stockout
from tpuctl.sim.world.nodes import lifecycle as node_specs
from tpuctl.sim.world.nodes.lifecycle import Lifecycle
from tpuctl.sim.world.nodes.service import NodeService
from tpuctl.sim.world.resources import (
    DEFAULT_CONTEXT,
    Node,
    NodeFields,
    NodeSpec,
    Operation,
    QueuedResource,
    QueuedResourceFields,
    RequestContext,
    SchedulingConfig,
    page,
    queued_resource_fields,
)
from tpuctl.sim.world.state import (
    LOST,
    NODE_ALLOWED,
    QUEUED_RESOURCE_ALLOWED,
    QUEUED_RESOURCE_NEXT,
    SERVING,
    State,
)
from tpuctl.sim.world.tasks import Tasks

logger = logging.getLogger(__name__)

STATE_AT_BEGIN: dict[str, str] = {
    "create": "CREATING",
    "delete": "DELETING",
    "reset": "SUSPENDING",
}
"""Verb of an operation -> the state that its queued resource enters at once."""

NO_CAPACITY = frozenset({Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION})
"""Codes of a node that could not be created for lack of capacity: its queued resource waits again."""


class Provisioning:
    """Moves each queued resource through its states, one task each.

    Every step reads the record afresh and ends in one commit, so that a restart repeats the step.
    """

    def __init__(self, state: State, nodes: NodeService, lifecycle: Lifecycle, capacity: Capacity) -> None:
        self._state = state
        self._operations = state.operations
        self._profile = state.profile
        self._nodes = nodes
        self._lifecycle = lifecycle
        self._capacity = capacity
        self._tasks = Tasks()
        self._steps: dict[str, Callable[[QueuedResource], Awaitable[None]]] = {
            "CREATING": self._accept,
            "ACCEPTED": self._admit,
            "WAITING_FOR_RESOURCES": self._wait,
            "PROVISIONING": self._provision,
            "ACTIVE": self._watch,
            "SUSPENDING": self._suspend,
            "DELETING": self._delete,
        }

    def begin(self, verb: str, queued: QueuedResource, context: RequestContext) -> Operation:
        """Begin an operation on a queued resource and cancel the one that runs, if any."""
        cancelled = self._operations.running_on(queued.name)
        with self._state.database.transaction():
            if cancelled:
                self._operations.end(cancelled, error=api_error("cancelled").status)
            operation = self._operations.begin(verb, queued, context=context)
            if verb in STATE_AT_BEGIN:
                initiator = "USER" if verb == "reset" else ""
                self._move(replace(queued, initiator=initiator, error=None), STATE_AT_BEGIN[verb])
        self._launch(queued.name)
        return operation

    async def resume(self) -> None:
        """After a restart, continue with every queued resource."""
        for queued in self._state.queued_resources.all():
            self._launch(queued.name)

    async def close(self) -> None:
        """Cancel the tasks; their queued resources are on disk."""
        await self._tasks.close()

    def _launch(self, name: str) -> None:
        self._tasks.start(name, lambda: self._drive(name))

    async def _drive(self, name: str) -> None:
        """Take step after step until the queued resource is in a state without one, or deleted."""
        queued = self._state.queued_resources.get(name)
        while queued and queued.state in self._steps:
            try:
                await self._steps[queued.state](queued)
            except Exception:
                logger.exception("queued resource %s is stuck in %s", name, queued.state)
                return
            queued = self._state.queued_resources.get(name)

    async def _accept(self, queued: QueuedResource) -> None:
        await self._profile.pause("accept", queued.since)
        with self._state.database.transaction():
            self._end_operation(queued, self._move(queued, "ACCEPTED"))

    async def _admit(self, queued: QueuedResource) -> None:
        await self._profile.pause("queue", queued.since)
        failure = queued.injected_error or self._permanent_failure(queued)
        if failure:
            self._move(replace(queued, error=failure), "FAILED")
        elif not self._has_capacity(queued):
            self._move(queued, "WAITING_FOR_RESOURCES")
        elif self._meets_stockout(queued):
            self._move(replace(queued, attempts=queued.attempts + 1), "WAITING_FOR_RESOURCES")
        else:
            self._begin_nodes(queued)

    async def _wait(self, queued: QueuedResource) -> None:
        """Look for capacity after every change, every `retry` seconds, and when the request becomes valid."""
        if queued.attempts:  # it has just met a stockout
            await self._profile.pause("retry", queued.since)
        while not (failure := self._permanent_failure(queued)):
            if self._has_capacity(queued):
                if not self._meets_stockout(queued):
                    self._begin_nodes(queued)
                    return
                await self._profile.sleep(self._profile.seconds("retry"))
                continue
            now = self._profile.clock()
            moments = (queued.valid_after, queued.valid_until, now + self._profile.seconds("retry"))
            await self._state.notifier.wait(min(moment for moment in moments if moment and moment > now))
        self._move(replace(queued, error=failure), "FAILED")

    async def _provision(self, queued: QueuedResource) -> None:
        """Wait until all its nodes serve, and it is ACTIVE, or until one fails, is preempted or deleted."""
        while True:
            failure = self._node_failure(queued)
            nodes = self._nodes_of(queued)
            if failure or len(nodes) < len(queued.nodes) or self._lost(nodes):
                break
            if all(node.state in SERVING for node in nodes):
                self._move(queued, "ACTIVE")
                return
            await self._state.notifier.wait(None)
        if failure and failure.code != Code.CANCELLED and not self._lost(nodes):
            await self._delete_nodes(queued, lost_too=True)
            if failure.code in NO_CAPACITY:
                self._move(replace(queued, error=None), "WAITING_FOR_RESOURCES")
            else:
                self._move(replace(queued, error=failure), "FAILED")
        else:
            self._move(replace(queued, initiator=self._initiator(nodes)), "SUSPENDING")

    async def _watch(self, queued: QueuedResource) -> None:
        """Wait until one of its nodes is preempted or deleted."""
        self._finish_maintenance(queued)
        nodes = self._nodes_of(queued)
        while len(nodes) == len(queued.nodes) and all(node.state in SERVING for node in nodes):
            await self._state.notifier.wait(None)
            self._finish_maintenance(queued)
            nodes = self._nodes_of(queued)
        self._move(replace(queued, initiator=self._initiator(nodes)), "SUSPENDING")

    async def _suspend(self, queued: QueuedResource) -> None:
        """Delete its nodes, but for preempted ones, which stay listed until they are deleted."""
        await self._profile.pause("suspend", queued.since)
        await self._delete_nodes(queued, lost_too=queued.requeue)
        with self._state.database.transaction():
            if queued.requeue:
                requeued = replace(queued, requeue=False, attempts=0, injected_error=None)
                self._end_operation(queued, self._move(requeued, "ACCEPTED"))
            else:
                self._end_operation(queued, self._move(queued, "SUSPENDED"))

    async def _delete(self, queued: QueuedResource) -> None:
        if queued.force:
            await self._delete_nodes(queued, lost_too=True)
        await self._profile.pause("dequeue", queued.since)
        with self._state.database.transaction():
            self._state.remove_queued_resource(queued.name)
            self._end_operation(queued, queued)

    def _begin_nodes(self, queued: QueuedResource) -> None:
        """Create all its nodes, or none when there is a node of one of their names by now."""
        try:
            with self._state.database.transaction():
                operations = tuple(self._nodes.add(node).name for node in self._drafts(queued))
                attempt = replace(queued, operations=operations, attempts=queued.attempts + 1)
                self._move(attempt, "PROVISIONING")
        except ApiError as failure:
            self._move(replace(queued, error=failure.status), "FAILED")

    def _drafts(self, queued: QueuedResource) -> list[Node]:
        existing = next((name for name in queued.nodes if self._nodes.has(name)), None)
        if existing:
            raise api_error("exists", name=existing)
        reservations = {
            requested.accelerator_type: self._capacity.reservations.find(requested).name
            for requested in capacity.of_queued_resource(queued)
            if requested.reservation
        }
        drafts = [self._nodes.draft(name, spec) for name, spec in queued.nodes.items()]
        multislice = len(drafts) > 1
        slices = tuple(draft.addresses[0] for draft in drafts) if multislice else ()
        return [
            replace(
                draft,
                queued_resource=queued.name,
                multislice=multislice,
                slices=slices,
                reservation=reservations.get(draft.accelerator_type, ""),
            )
            for draft in drafts
        ]

    def _has_capacity(self, queued: QueuedResource) -> bool:
        if queued.valid_after is not None and self._profile.clock() < queued.valid_after:
            return False
        return not any(map(self._capacity.shortage, capacity.of_queued_resource(queued)))

    def _meets_stockout(self, queued: QueuedResource) -> bool:
        """Whether an injected stockout keeps one of its nodes from being created: it waits then."""
        return any(
            stockout(self._state.faults, name, spec["acceleratorType"]) for name, spec in queued.nodes.items()
        )

    def _permanent_failure(self, queued: QueuedResource) -> Status | None:
        """Return why it will never be provisioned: it is not valid any more, or lacks its reservation."""
        if queued.valid_until is not None and self._profile.clock() >= queued.valid_until:
            return api_error("expired").status
        shortages = map(self._capacity.shortage, capacity.of_queued_resource(queued))
        return next((status for status in shortages if status and status.code == Code.NOT_FOUND), None)

    def _node_failure(self, queued: QueuedResource) -> Status | None:
        """Return the error of the first of its nodes that could not be created."""
        for name in queued.operations:
            operation = self._operations.find(name)
            if operation and operation.error:
                return operation.error
        return None

    async def _delete_nodes(self, queued: QueuedResource, *, lost_too: bool) -> None:
        """Delete its nodes, preempted ones only with `lost_too`, and wait until they are removed."""
        tried: set[str] = set()
        while nodes := [node for node in self._nodes_of(queued) if lost_too or node.state not in LOST]:
            ready = [
                node
                for node in nodes
                if "delete" in NODE_ALLOWED[node.state] and not self._lifecycle.is_being_reclaimed(node)
            ]
            if any(node.name in tried for node in ready):  # its delete has failed
                await self._profile.sleep(self._profile.seconds("retry"))
            for node in ready:
                tried.add(node.name)
                self._lifecycle.begin("delete", node)
            if not ready:
                await self._state.notifier.wait(None)

    def _nodes_of(self, queued: QueuedResource) -> list[Node]:
        """Return its nodes that exist, without others of the same names."""
        nodes = (self._state.nodes.get(name) for name in queued.nodes)
        return [node for node in nodes if node and node.queued_resource == queued.name]

    def _lost(self, nodes: list[Node]) -> bool:
        return any(node.state in LOST or node.state == "DELETING" for node in nodes)

    def _initiator(self, nodes: list[Node]) -> str:
        return "SERVICE" if any(node.state in LOST for node in nodes) else "USER"

    def _finish_maintenance(self, queued: QueuedResource) -> None:
        running = self._operations.running_on(queued.name)
        if running and all(node.state != "REPAIRING" for node in self._nodes_of(queued)):
            self._operations.end(running, result=queued)

    def _end_operation(self, queued: QueuedResource, result: QueuedResource) -> None:
        running = self._operations.running_on(queued.name)
        if running:
            self._operations.end(running, result=result)

    def _move(self, queued: QueuedResource, state: str) -> QueuedResource:
        """Store it in its new state, which must be one that may follow, or as new."""
        before = self._state.queued_resources.get(queued.name)
        allowed = before is None or state in QUEUED_RESOURCE_NEXT[before.state]
        assert allowed, (resources.id_of(queued.name), before, state)
        initiator = queued.initiator if state in ("SUSPENDING", "SUSPENDED") else ""
        moved = replace(queued, state=state, since=self._profile.clock(), initiator=initiator)
        self._state.save_queued_resource(moved)
        return moved


MAX_NODES = 256
"""Ours: a bound on the nodes of one request."""
HINTS = {"delete": "; set force to delete its nodes, too"}


class QueuedResourceService:
    """All queued resources. As with nodes, no call awaits between its checks and its commit."""

    def __init__(
        self, state: State, nodes: NodeService, capacity: Capacity, provisioning: Provisioning
    ) -> None:
        self._state = state
        self._nodes = nodes
        self._capacity = capacity
        self._provisioning = provisioning

    def get(self, name: str) -> QueuedResource:
        """Return the queued resource called `name`; raises NOT_FOUND."""
        queued = self._state.queued_resources.get(name)
        if queued is None:
            resources.require_collection(name, "queuedResources")
            raise api_error("not_found", name=name)
        return queued

    def all(self) -> list[QueuedResource]:
        """Return every queued resource, of all projects and zones."""
        return self._state.queued_resources.all()

    def page(
        self, parent: str, size: int, token: str, without: Collection[str] = ()
    ) -> tuple[list[QueuedResource], str]:
        """Return one page of those in a zone, or with `-` in all but `without`, and the token of the next."""
        listed = self._state.queued_resources.all(resources.list_prefix(parent))
        if without:
            listed = [queued for queued in listed if resources.parse(queued.name).zone not in without]
        return page(listed, lambda queued: queued.name, size, token)

    def create(
        self,
        parent: str,
        identifier: str,
        sent: Mapping[str, object],
        context: RequestContext = DEFAULT_CONTEXT,
    ) -> Operation:
        """Queue a request for nodes; raises RESOURCE_EXHAUSTED for quota. It waits for capacity."""
        resources.require_identifier(identifier, "queued resource")
        name = f"{parent}/queuedResources/{identifier}"
        resources.require_collection(name, "queuedResources")
        repeated = self._state.operations.find_repeated("create", name, context)
        if repeated:
            return repeated
        queued = self._draft(name, sent)
        for new_name in (name, *queued.nodes):
            if self._state.queued_resources.get(new_name) or self._nodes.has(new_name):
                raise api_error("exists", name=new_name)
        for requested in capacity.of_queued_resource(queued):
            self._capacity.quotas.require(requested)
        return self._provisioning.begin("create", queued, context)

    def delete(self, name: str, *, force: bool, context: RequestContext = DEFAULT_CONTEXT) -> Operation:
        """Delete a queued resource, with `force` its nodes before it; raises FAILED_PRECONDITION."""
        repeated = self._state.operations.find_repeated("delete", name, context)
        if repeated:
            return repeated
        queued = self.get(name)
        nodeless = not any(self._nodes.has(node) for node in queued.nodes) and queued.state != "DELETING"
        if force or not nodeless:
            self._require(queued, "force delete" if force else "delete")
        return self._provisioning.begin("delete", replace(queued, force=force), context)

    def reset(self, name: str, context: RequestContext = DEFAULT_CONTEXT) -> Operation:
        """Delete its remaining nodes and queue it again."""
        queued = self.get(name)
        self._require(queued, "reset")
        return self._provisioning.begin("reset", replace(queued, requeue=True), context)

    def perform_maintenance(
        self, name: str, nodes: Sequence[str], context: RequestContext = DEFAULT_CONTEXT
    ) -> Operation:
        """Perform maintenance on these of its nodes, by id or by name; on all when `nodes` is empty."""
        queued = self.get(name)
        self._require(queued, "perform maintenance")
        by_id = {resources.id_of(node): node for node in queued.nodes}
        unknown = [node for node in nodes if resources.id_of(node) not in by_id]
        if unknown:
            raise api_error("bad_field", reason=f"{name} has no node {', '.join(unknown)}")
        chosen = [by_id[resources.id_of(node)] for node in nodes] or list(queued.nodes)
        with self._state.database.transaction():
            for node in chosen:
                self._nodes.perform_maintenance(node, context)
            return self._provisioning.begin("performMaintenanceQueuedResource", queued, context)

    def _draft(self, name: str, sent: Mapping[str, object]) -> QueuedResource:
        now = self._state.profile.clock()
        spec, nodes = checked(resources.parse(name).parent, resources.id_of(name), sent)
        after, until = validity(spec, now)
        return QueuedResource(
            name=name,
            state="CREATING",
            create_time=now,
            since=now,
            spec=spec,
            nodes=nodes,
            valid_after=after,
            valid_until=until,
            injected_error=operation_fault(self._state.faults, "CreateQueuedResource", name, "").error,
        )

    def _require(self, queued: QueuedResource, call: str) -> None:
        """Raise FAILED_PRECONDITION unless the queued resource's state allows the call."""
        if call not in QUEUED_RESOURCE_ALLOWED[queued.state]:
            hint = HINTS.get(call, "")
            raise api_error("queue_state", call=call, name=queued.name, state=queued.state, hint=hint)


# The fields of a queued resource that a request may set: the nodes it requests, and when it is valid.


def checked(
    parent: str, identifier: str, sent: Mapping[str, object]
) -> tuple[QueuedResourceFields, dict[str, NodeFields]]:
    """Return the fields of a queued resource as sent, and those of each requested node by its full name.

    Raises INVALID_ARGUMENT.
    """
    spec = queued_resource_fields(sent)
    requested = spec.get("tpu", {}).get("nodeSpec", [])
    if not requested:
        raise api_error("bad_field", reason="a queued resource must have a node_spec")
    nodes: dict[str, NodeFields] = {}
    node_specs_checked: list[NodeSpec] = []
    for node_spec in requested:
        if node_spec.get("parent") != parent:
            raise api_error("bad_field", reason=f"node_spec.parent must be {parent}")
        node = node_specs.checked(resources.parse(parent).zone, node_spec.get("node", {}))
        node_specs_checked.append({**node_spec, "node": node})
        for node_id in _node_ids(identifier, node_spec):
            nodes[f"{parent}/nodes/{node_id}"] = _in_tier(spec, node)
    if len(nodes) > MAX_NODES:
        raise api_error("bad_field", reason=f"a queued resource has {MAX_NODES} nodes at most")
    return {**spec, "tpu": {"nodeSpec": node_specs_checked}}, nodes


def validity(spec: QueuedResourceFields, now: float) -> tuple[float | None, float | None]:
    """Return from when and until when resources may be created, in seconds since 1970."""
    policy = spec.get("queueingPolicy", {})
    interval = policy.get("validInterval", {})
    start, end = interval.get("startTime"), interval.get("endTime")
    after = _moment(policy.get("validAfterTime", start), policy.get("validAfterDuration"), now)
    until = _moment(policy.get("validUntilTime", end), policy.get("validUntilDuration"), now)
    if until is not None and until <= max(after or now, now):
        raise api_error(
            "bad_field", reason="queueing_policy leaves no time in which resources may be created"
        )
    return after, until


def _node_ids(identifier: str, node_spec: NodeSpec) -> Iterator[str]:
    """Yield one id, or `PREFIX-0` to `PREFIX-<n-1>`."""
    multislice = node_spec.get("multisliceParams", {})
    if bool(multislice) == bool(node_spec.get("nodeId")):
        reason = "node_spec needs either a node_id or the parameters of several nodes"
        raise api_error("bad_field", reason=reason)
    prefix = node_spec.get("nodeId") or multislice.get("nodeIdPrefix") or identifier
    if not multislice:
        resources.require_identifier(prefix)
        yield prefix
        return
    count = multislice.get("nodeCount", 0)
    if count <= 1:
        raise api_error("bad_field", reason="node_count must be greater than 1")
    resources.require_identifier(f"{prefix}-{count - 1}")
    yield from (f"{prefix}-{number}" for number in range(count))


def _in_tier(spec: QueuedResourceFields, node: NodeFields) -> NodeFields:
    """Return a node's fields with the schedulingConfig of the queued resource's tier."""
    scheduling: SchedulingConfig = {**node.get("schedulingConfig", {}), **_tier(spec)}
    if spec.get("reservationName") or spec.get("guaranteed", {}).get("reserved"):
        scheduling["reserved"] = True
    return {**node, "schedulingConfig": scheduling} if scheduling else node


def _tier(spec: QueuedResourceFields) -> SchedulingConfig:
    if "spot" in spec:
        return {"spot": True}
    if "bestEffort" in spec:  # of v2alpha1; that its nodes are preemptible is ours
        return {"preemptible": True}
    return {}


def _moment(time: str | None, duration: str | None, now: float) -> float | None:
    """Return seconds since 1970 from protobuf's JSON: `2026-01-31T12:00:00.5Z`, `3600s`."""
    if duration is not None:
        return now + float(duration.removesuffix("s"))
    if time is None:
        return None
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
    return moment.timestamp() + float(f"0.{fraction or 0}")
