"""The queued resources: what may be asked of them, and the answers that take no time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.settings import Profile
from tpuctl.sim.state.database import Database, RecordTable
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import problem
from tpuctl.sim.world.capacity.supply import Supply, wanted_in
from tpuctl.sim.world.fault_errors import ending
from tpuctl.sim.world.nodes.service import Fleet
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.pages import page
from tpuctl.sim.world.queue import specs as queue_specs
from tpuctl.sim.world.queue.provisioning import Provisioning
from tpuctl.sim.world.resources import PLAINLY, Asked, Operation, QueuedResource
from tpuctl.sim.world.states import QUEUE_ALLOWED

HINTS = {"delete": "; set force to delete its nodes, too"}


class Queue:
    """All queued resources. As with nodes, no call awaits between its checks and its commit."""

    def __init__(
        self,
        database: Database,
        profile: Profile,
        faults: FaultRegistry,
        queued: RecordTable[QueuedResource],
        fleet: Fleet,
        operations: Operations,
        supply: Supply,
        provisioning: Provisioning,
    ) -> None:
        self._database = database
        self._profile = profile
        self._faults = faults
        self._queued = queued
        self._fleet = fleet
        self._operations = operations
        self._supply = supply
        self._provisioning = provisioning

    def get(self, name: str) -> QueuedResource:
        """Return the queued resource called `name`; raises NOT_FOUND."""
        found = self._queued.get(name)
        if found is None:
            names.require(name, "queuedResources")
            raise problem("not_found", name=name)
        return found

    def page(
        self, parent: str, size: int, token: str, without: Collection[str] = ()
    ) -> tuple[list[QueuedResource], str]:
        """Return one page of those in a zone, or with `-` in all but `without`, and the token of the next."""
        found = self._queued.all(names.prefix(parent))
        if without:
            found = [one for one in found if names.place(one.name)[1] not in without]
        return page(found, lambda one: one.name, size, token)

    def create(
        self, parent: str, identifier: str, sent: Mapping[str, Any], asked: Asked = PLAINLY
    ) -> Operation:
        """Queue a request for nodes; raises RESOURCE_EXHAUSTED for quota, while it waits for capacity."""
        if not names.IDENTIFIER.fullmatch(identifier):
            raise problem("bad_id", id=identifier)
        name = f"{parent}/queuedResources/{identifier}"
        names.require(name, "queuedResources")
        known = self._operations.asked_before("create", name, asked)
        if known:
            return known
        queued = self._draft(name, sent)
        for taken in (name, *queued.nodes):
            if self._queued.get(taken) or self._fleet.has(taken):
                raise problem("exists", name=taken)
        for wanted in wanted_in(queued):
            self._supply.require_quota(wanted)
        return self._provisioning.begin("create", queued, asked)

    def delete(self, name: str, *, force: bool, asked: Asked = PLAINLY) -> Operation:
        """Delete a queued resource, with `force` its nodes before it; raises FAILED_PRECONDITION."""
        known = self._operations.asked_before("delete", name, asked)
        if known:
            return known
        queued = self.get(name)
        nodeless = not any(self._fleet.has(node) for node in queued.nodes) and queued.state != "DELETING"
        if force or not nodeless:
            self._require(queued, "force delete" if force else "delete")
        return self._provisioning.begin("delete", replace(queued, force=force), asked)

    def reset(self, name: str, asked: Asked = PLAINLY) -> Operation:
        """Delete what is left of its nodes and queue it anew."""
        queued = self.get(name)
        self._require(queued, "reset")
        return self._provisioning.begin("reset", replace(queued, requeue=True), asked)

    def perform_maintenance(self, name: str, nodes: Sequence[str], asked: Asked = PLAINLY) -> Operation:
        """Perform maintenance on these of its nodes, by id or by name, on all when none is given."""
        queued = self.get(name)
        self._require(queued, "perform maintenance")
        known = {names.last(node): node for node in queued.nodes}
        unknown = [node for node in nodes if names.last(node) not in known]
        if unknown:
            raise problem("bad_field", what=f"{name} has no node {', '.join(unknown)}")
        chosen = [known[names.last(node)] for node in nodes] or list(queued.nodes)
        with self._database.transaction():
            for node in chosen:
                self._fleet.perform_maintenance(node, asked)
            return self._provisioning.begin("performMaintenanceQueuedResource", queued, asked)

    def _draft(self, name: str, sent: Mapping[str, Any]) -> QueuedResource:
        now = self._profile.clock()
        spec, nodes = queue_specs.checked(names.parent(name), names.last(name), sent)
        after, until = queue_specs.validity(spec, now)
        return QueuedResource(
            name=name,
            state="CREATING",
            create_time=now,
            since=now,
            spec=spec,
            nodes=nodes,
            valid_after=after,
            valid_until=until,
            fault=ending(self._faults, "CreateQueuedResource", name, "").error,
        )

    def _require(self, queued: QueuedResource, call: str) -> None:
        if call not in QUEUE_ALLOWED[queued.state]:
            hint = HINTS.get(call, "")
            raise problem("queue_state", call=call, name=queued.name, state=queued.state, hint=hint)
