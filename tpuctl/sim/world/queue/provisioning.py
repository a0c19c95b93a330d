"""What takes time in a queued resource's life: its states as its nodes come and go, over restarts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tpuctl.sim.events import Events
from tpuctl.sim.settings import Profile
from tpuctl.sim.state.database import Database, RecordTable
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import Code, Problem, Status, problem
from tpuctl.sim.world.capacity.supply import Supply, wanted_in
from tpuctl.sim.world.change_notifier import Wakes
from tpuctl.sim.world.nodes.lifecycle import Lifecycle
from tpuctl.sim.world.nodes.service import Fleet
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.resources import Asked, Node, Operation, QueuedResource
from tpuctl.sim.world.states import LOST, QUEUE_NEXT, SERVING
from tpuctl.sim.world.tasks import Tasks

logger = logging.getLogger(__name__)

BEGUN: dict[str, str | None] = {
    "create": "CREATING",
    "delete": "DELETING",
    "reset": "SUSPENDING",
    "performMaintenanceQueuedResource": None,
}
"""The operation's verb -> the state that it leads to at once."""

AGAIN = frozenset({Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION})
"""Codes of a node that could not be created for want of capacity: its queued resource goes on waiting."""


class Provisioning:
    """Drives each queued resource, one task each.

    Every step reads its record afresh and ends in one commit, so that a restart goes on with the same step.
    """

    def __init__(
        self,
        database: Database,
        profile: Profile,
        events: Events,
        queued: RecordTable[QueuedResource],
        nodes: RecordTable[Node],
        fleet: Fleet,
        operations: Operations,
        lifecycle: Lifecycle,
        supply: Supply,
        wakes: Wakes,
    ) -> None:
        self._database = database
        self._profile = profile
        self._events = events
        self._queued = queued
        self._nodes = nodes
        self._fleet = fleet
        self._operations = operations
        self._lifecycle = lifecycle
        self._supply = supply
        self._wakes = wakes
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

    def begin(self, verb: str, queued: QueuedResource, asked: Asked) -> Operation:
        """Begin an operation on a queued resource, cancelling the one that runs, if any."""
        overtaken = self._operations.running_on(queued.name)
        with self._database.transaction():
            if overtaken:
                self._operations.end(overtaken, error=problem("cancelled").status)
            operation = self._operations.begin(verb, queued, asked=asked)
            if BEGUN[verb]:
                initiator = "USER" if verb == "reset" else ""
                self._move(queued, str(BEGUN[verb]), initiator=initiator, error=None)
        self._launch(queued.name)
        return operation

    async def resume(self) -> None:
        """After a restart, go on with every queued resource."""
        for queued in self._queued.all():
            self._launch(queued.name)

    async def close(self) -> None:
        """Cancel the tasks; what they worked on is on disk."""
        await self._tasks.close()

    def _launch(self, name: str) -> None:
        self._tasks.start(name, lambda: self._drive(name))

    async def _drive(self, name: str) -> None:
        """Take step after step until there is none: the queued resource is at rest, or gone."""
        queued = self._queued.get(name)
        while queued and queued.state in self._steps:
            try:
                await self._steps[queued.state](queued)
            except Exception:
                logger.exception("queued resource %s is stuck in %s", name, queued.state)
                return
            queued = self._queued.get(name)

    async def _accept(self, queued: QueuedResource) -> None:
        await self._profile.pause("accept", queued.since)
        with self._database.transaction():
            self._end_operation(queued, self._move(queued, "ACCEPTED"))

    async def _admit(self, queued: QueuedResource) -> None:
        await self._profile.pause("queue", queued.since)
        failure = queued.fault or self._hopeless(queued)
        if failure:
            self._move(queued, "FAILED", error=failure)
        elif self._has_room(queued):
            self._begin_nodes(queued)
        else:
            self._move(queued, "WAITING_FOR_RESOURCES")

    async def _wait(self, queued: QueuedResource) -> None:
        """Look again whenever something changes, now and then, and when the time comes."""
        if queued.tries:  # it has just come back from provisioning
            await self._profile.pause("retry", queued.since)
        while not (failure := self._hopeless(queued)):
            if self._has_room(queued):
                self._begin_nodes(queued)
                return
            now = self._profile.clock()
            moments = (queued.valid_after, queued.valid_until, now + self._profile.seconds("retry"))
            await self._wakes.sleep(min(moment for moment in moments if moment and moment > now))
        self._move(queued, "FAILED", error=failure)

    async def _provision(self, queued: QueuedResource) -> None:
        while True:
            failure = self._failure(queued)
            nodes = self._nodes_of(queued)
            if failure or len(nodes) < len(queued.nodes) or self._lost(nodes):
                break
            if all(node.state in SERVING for node in nodes):
                self._move(queued, "ACTIVE")
                return
            await self._wakes.sleep(None)
        if failure and failure.code != Code.CANCELLED and not self._lost(nodes):
            await self._remove(queued, every=True)
            state = "WAITING_FOR_RESOURCES" if failure.code in AGAIN else "FAILED"
            self._move(queued, state, error=None if failure.code in AGAIN else failure)
        else:
            self._move(queued, "SUSPENDING", initiator=self._initiator(nodes))

    async def _watch(self, queued: QueuedResource) -> None:
        """Until one of its nodes is taken away or deleted."""
        self._finish_maintenance(queued)
        nodes = self._nodes_of(queued)
        while len(nodes) == len(queued.nodes) and all(node.state in SERVING for node in nodes):
            await self._wakes.sleep(None)
            self._finish_maintenance(queued)
            nodes = self._nodes_of(queued)
        self._move(queued, "SUSPENDING", initiator=self._initiator(nodes))

    async def _suspend(self, queued: QueuedResource) -> None:
        """Its nodes go, but those that Google took stay listed until they are deleted."""
        await self._profile.pause("suspend", queued.since)
        await self._remove(queued, every=queued.requeue)
        with self._database.transaction():
            if queued.requeue:
                anew = self._move(queued, "ACCEPTED", initiator="", requeue=False, tries=0, fault=None)
                self._end_operation(queued, anew)
            else:
                self._end_operation(queued, self._move(queued, "SUSPENDED"))

    async def _delete(self, queued: QueuedResource) -> None:
        if queued.force:
            await self._remove(queued, every=True)
        await self._profile.pause("dequeue", queued.since)
        with self._database.transaction():
            self._queued.remove(queued.name)
            self._events.note("transition", "DELETED", queued.name)
            self._end_operation(queued, queued)
        self._wakes.call()

    def _begin_nodes(self, queued: QueuedResource) -> None:
        """Create all its nodes, or none when one of their names has been taken since."""
        begun: list[Operation] = []
        try:
            with self._database.transaction():
                begun += [self._fleet.add(node) for node in self._drafts(queued)]
                operations = tuple(operation.name for operation in begun)
                self._move(queued, "PROVISIONING", operations=operations, tries=queued.tries + 1)
        except Problem as failure:
            self._move(queued, "FAILED", error=failure.status)

    def _drafts(self, queued: QueuedResource) -> list[Node]:
        taken = next((name for name in queued.nodes if self._fleet.has(name)), None)
        if taken:
            raise problem("exists", name=taken)
        sources = {one.type: self._supply.source(one) for one in wanted_in(queued) if one.reservation}
        drafts = [self._fleet.draft(name, spec) for name, spec in queued.nodes.items()]
        several = len(drafts) > 1
        slices = tuple(draft.addresses[0] for draft in drafts) if several else ()
        return [
            replace(
                draft,
                queued_resource=queued.name,
                multislice=several,
                slices=slices,
                reservation=sources.get(draft.accelerator_type, ""),
            )
            for draft in drafts
        ]

    def _has_room(self, queued: QueuedResource) -> bool:
        if queued.valid_after is not None and self._profile.clock() < queued.valid_after:
            return False
        return not any(self._supply.shortage(one) for one in wanted_in(queued))

    def _hopeless(self, queued: QueuedResource) -> Status | None:
        """Why it will never be provisioned: its time is over, or there is no such reservation."""
        if queued.valid_until is not None and self._profile.clock() >= queued.valid_until:
            return problem("expired").status
        shortages = (self._supply.shortage(one) for one in wanted_in(queued))
        return next((one for one in shortages if one and one.code == Code.NOT_FOUND), None)

    def _failure(self, queued: QueuedResource) -> Status | None:
        """How the first of its nodes that could not be created ended."""
        for name in queued.operations:
            operation = self._operations.find(name)
            if operation and operation.error:
                return operation.error
        return None

    async def _remove(self, queued: QueuedResource, *, every: bool) -> None:
        """Delete its nodes, those that are lost only with `every`, and wait until they are gone."""
        tried: set[str] = set()
        while nodes := [node for node in self._nodes_of(queued) if every or node.state not in LOST]:
            ready = [
                node for node in nodes if node.state != "DELETING" and not self._lifecycle.is_going(node)
            ]
            if any(node.name in tried for node in ready):  # its delete has failed
                await self._profile.sleep(self._profile.seconds("retry"))
            for node in ready:
                tried.add(node.name)
                self._lifecycle.begin("delete", node)
            if not ready:
                await self._wakes.sleep(None)

    def _nodes_of(self, queued: QueuedResource) -> list[Node]:
        """Its own nodes that are there; one of the same name made by hand is not."""
        found = (self._nodes.get(name) for name in queued.nodes)
        return [node for node in found if node and node.queued_resource == queued.name]

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

    def _move(self, queued: QueuedResource, state: str, **changes: Any) -> QueuedResource:
        """File it in its new state, which the table must allow, or as new."""
        before = self._queued.get(queued.name)
        assert before is None or state in QUEUE_NEXT[before.state], (names.last(queued.name), before, state)
        if state not in ("SUSPENDING", "SUSPENDED"):
            changes.setdefault("initiator", "")
        moved = replace(queued, state=state, since=self._profile.clock(), **changes)
        self._queued.put(moved)
        self._events.note("transition", state, queued.name)
        self._wakes.call()
        return moved
