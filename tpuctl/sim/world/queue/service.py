"""The calls on queued resources: each checks its request, then begins an operation or returns a record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tpuctl.sim.world import resources
from tpuctl.sim.world.api_errors import api_error
from tpuctl.sim.world.capacity import capacity
from tpuctl.sim.world.capacity.capacity import Capacity
from tpuctl.sim.world.injected_faults import operation_fault
from tpuctl.sim.world.nodes import specs as node_specs
from tpuctl.sim.world.nodes.service import NodeService
from tpuctl.sim.world.queue.provisioning import Provisioning
from tpuctl.sim.world.resources import (
    DEFAULT_CONTEXT,
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
from tpuctl.sim.world.state import QUEUED_RESOURCE_ALLOWED, State

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
