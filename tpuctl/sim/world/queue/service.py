"""The calls on queued resources: each checks its request, then begins an operation or returns a record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import api_error
from tpuctl.sim.world.capacity import demand
from tpuctl.sim.world.capacity.capacity import Capacity
from tpuctl.sim.world.injected_faults import operation_fault
from tpuctl.sim.world.nodes.service import NodeService
from tpuctl.sim.world.pages import page
from tpuctl.sim.world.queue import specs
from tpuctl.sim.world.queue.provisioning import Provisioning
from tpuctl.sim.world.resources import DEFAULT_CONTEXT, Operation, QueuedResource, RequestContext
from tpuctl.sim.world.state import State
from tpuctl.sim.world.state_machine import QUEUED_RESOURCE_ALLOWED

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
            names.require_collection(name, "queuedResources")
            raise api_error("not_found", name=name)
        return queued

    def all(self) -> list[QueuedResource]:
        """Return every queued resource, of all projects and zones."""
        return self._state.queued_resources.all()

    def page(
        self, parent: str, size: int, token: str, without: Collection[str] = ()
    ) -> tuple[list[QueuedResource], str]:
        """Return one page of those in a zone, or with `-` in all but `without`, and the token of the next."""
        listed = self._state.queued_resources.all(names.list_prefix(parent))
        if without:
            listed = [queued for queued in listed if names.parse(queued.name).zone not in without]
        return page(listed, lambda queued: queued.name, size, token)

    def create(
        self,
        parent: str,
        identifier: str,
        sent: Mapping[str, object],
        context: RequestContext = DEFAULT_CONTEXT,
    ) -> Operation:
        """Queue a request for nodes; raises RESOURCE_EXHAUSTED for quota. It waits for capacity."""
        names.require_identifier(identifier, "queued resource")
        name = f"{parent}/queuedResources/{identifier}"
        names.require_collection(name, "queuedResources")
        repeated = self._state.operations.find_repeated("create", name, context)
        if repeated:
            return repeated
        queued = self._draft(name, sent)
        for new_name in (name, *queued.nodes):
            if self._state.queued_resources.get(new_name) or self._nodes.has(new_name):
                raise api_error("exists", name=new_name)
        for requested in demand.of_queued_resource(queued):
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
        by_id = {names.id_of(node): node for node in queued.nodes}
        unknown = [node for node in nodes if names.id_of(node) not in by_id]
        if unknown:
            raise api_error("bad_field", reason=f"{name} has no node {', '.join(unknown)}")
        chosen = [by_id[names.id_of(node)] for node in nodes] or list(queued.nodes)
        with self._state.database.transaction():
            for node in chosen:
                self._nodes.perform_maintenance(node, context)
            return self._provisioning.begin("performMaintenanceQueuedResource", queued, context)

    def _draft(self, name: str, sent: Mapping[str, object]) -> QueuedResource:
        now = self._state.profile.clock()
        spec, nodes = specs.checked(names.parse(name).parent, names.id_of(name), sent)
        after, until = specs.validity(spec, now)
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
