"""What takes time in a node's life: each operation from its begin to its end, over restarts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.records import Hosts
from tpuctl.sim.settings import Profile
from tpuctl.sim.state.database import Database, RecordTable
from tpuctl.sim.world.api_errors import Problem, Status, problem
from tpuctl.sim.world.change_notifier import Wakes
from tpuctl.sim.world.fault_errors import ending
from tpuctl.sim.world.nodes.host_effects import NO_HEALTH, Work
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.resources import PLAINLY, Asked, Node, Operation
from tpuctl.sim.world.states import CANCELLABLE, TRANSITIONS
from tpuctl.sim.world.tasks import Tasks

logger = logging.getLogger(__name__)

PREEMPTIBLE_LIFE = 24 * 3600.0
"""Seconds that a preemptible node lives at most; a spot node has no limit (Cloud TPU documentation)."""


class Lifecycle:
    """Carries operations out, one task a node.

    A node's new state and its operation's are committed together, so that a restart finds both or neither;
    an operation that it finds running is carried out again from the start, which `Hosts` allows.
    """

    def __init__(
        self,
        database: Database,
        profile: Profile,
        hosts: Hosts,
        faults: FaultRegistry,
        events: Events,
        nodes: RecordTable[Node],
        operations: Operations,
        wakes: Wakes,
    ) -> None:
        self.operations = operations
        self._database = database
        self._profile = profile
        self._work = Work(hosts)
        self._faults = faults
        self._events = events
        self._nodes = nodes
        self._wakes = wakes
        self._tasks = Tasks()
        self._ends = Tasks()
        self._going: set[int] = set()

    def begin(
        self,
        verb: str,
        node: Node,
        changes: dict[str, Any] | None = None,
        fault: Status | None = None,
        asked: Asked = PLAINLY,
    ) -> Operation:
        """Begin an operation on a node, cancelling the one that runs, if any; `fault` is how it will end."""
        transition = TRANSITIONS[verb]
        usual = self._profile.seconds("failure")
        asked_end = ending(self._faults, transition.method, node.name, node.accelerator_type, usual)
        overtaken = self.operations.running_on(node.name)
        with self._database.transaction():
            if overtaken:
                self.operations.end(overtaken, error=problem("cancelled").status)
            coming = replace(asked_end, error=asked_end.error or fault)
            operation = self.operations.begin(verb, node, changes, coming, asked)
            if transition.during:
                self._put(replace(node, state=transition.during))
        self._launch(operation)
        return operation

    def cancel(self, operation_name: str) -> None:
        """Ask an operation to end: a create does, and its node goes; any other goes on, as Google allows."""
        operation = self.operations.get(operation_name)
        if operation.done:
            return
        asked = self.operations.request_cancel(operation)
        if operation.on_node and operation.verb in CANCELLABLE:
            self._launch(asked)

    def is_going(self, node: Node) -> bool:
        """Whether the node is being taken back at this moment."""
        return node.uid in self._going

    async def announce_preemption(self, node: Node) -> None:
        """Tell the node's hosts that they are about to be taken away."""
        self._events.note("notice", "PREEMPTED", node.name)
        await self._work.announce_preemption(node)

    async def take_back(self, node: Node, state: str) -> None:
        """End a node's hosts, then make it PREEMPTED or TERMINATED and its operation a failure."""
        self._going.add(node.uid)
        taking = self._tasks.start(node.name, lambda: self._take_back(node, state))
        try:
            await asyncio.wait({taking})
        finally:
            self._going.discard(node.uid)
        if not taking.cancelled():  # a delete may have taken over
            taking.result()

    async def resume(self) -> None:
        """After a restart, bring the hosts of READY nodes up again and continue the operations."""
        ready = [node for node in self._nodes.all() if node.state == "READY"]
        await asyncio.gather(*(self._revive(node) for node in ready))
        for operation in self.operations.running():
            if operation.on_node:
                self._launch(operation)

    async def close(self) -> None:
        """Cancel the tasks; what they worked on is on disk."""
        await self._ends.close()
        await self._tasks.close()

    def _launch(self, operation: Operation) -> None:
        self._tasks.start(operation.target, lambda: self._run(operation))

    async def _run(self, operation: Operation) -> None:
        if not self._is_current(operation):
            return
        try:
            await self._wait_its_time(operation)
            after = await self._work.do(self._node(operation), operation)
        except Problem as failure:
            await self._fail(operation, failure.status)
        except Exception as bug:
            logger.exception("operation %s failed", operation.name)
            await self._fail(operation, problem("internal", what=f"{type(bug).__name__}: {bug}").status)
        else:
            self._finish(operation, after)

    async def _wait_its_time(self, operation: Operation) -> None:
        if operation.cancel_requested and operation.verb in CANCELLABLE:
            raise problem("cancelled")
        await self._while_held(operation)
        begun = operation.create_time + operation.delay
        if operation.fault:
            await self._profile.pause("failure", begun)
            raise Problem(operation.fault)
        await self._profile.pause(operation.verb, begun)

    async def _while_held(self, operation: Operation) -> None:
        while fault := self._faults.find(operation.held):
            await self._wakes.sleep(fault.ends)

    async def _take_back(self, node: Node, state: str) -> None:
        try:
            await self._work.take_down(node, keep_disk=True)
        except Exception:
            logger.exception("the hosts of %s did not stop", node.name)
        current = self._nodes.get(node.name)
        if current is None or current.uid != node.uid or current.state == "DELETING":
            return
        running = self.operations.running_on(node.name)
        with self._database.transaction():
            self._put(replace(current, state=state, health=NO_HEALTH, maintenance=None, flagged=()))
            if running:
                status = problem("wrong_state", call="update", state=state).status
                self.operations.end(running, error=status)

    async def _fail(self, operation: Operation, error: Status) -> None:
        """A node that could not be created goes; any other is as it was before."""
        node = self._node(operation)
        if operation.verb != "create":
            self._finish(operation, replace(node, state=operation.before), error)
            return
        try:
            await self._work.take_down(node, keep_disk=False)
        except Exception:
            logger.exception("the hosts of %s did not stop", node.name)
        self._finish(operation, None, error)

    def _finish(self, operation: Operation, node: Node | None, error: Status | None = None) -> None:
        """Commit the node as it is now (None: gone) together with the end of its operation."""
        if not self._is_current(operation):
            return  # overtaken, by hosts that do not let themselves be cancelled
        with self._database.transaction():
            if node:
                self._put(node)
            else:
                self._nodes.remove(operation.target)
                self._events.note("transition", "DELETED", operation.target)
                self._wakes.call()
            self.operations.end(operation, result=None if error else node, error=error)

    async def _revive(self, node: Node) -> None:
        try:
            await self._work.revive(node)
            health = "HEALTHY"
        except Exception:
            logger.exception("the hosts of %s did not come up again", node.name)
            health = "TIMEOUT"
        self._put(replace(node, health=health))

    def _is_current(self, operation: Operation) -> bool:
        running = self.operations.running_on(operation.target)
        return running is not None and running.name == operation.name

    def _node(self, operation: Operation) -> Node:
        """The node as it is now; it cannot go before its operation has ended."""
        node = self._nodes.get(operation.target)
        assert node is not None
        return node

    def _put(self, node: Node) -> None:
        before = self._nodes.get(node.name)
        self._nodes.put(node)
        if before is None or before.state != node.state:
            self._events.note("transition", node.state, node.name)
        self._wakes.call()
        if node.limited and node.state == "READY":
            self._ends.start(node.name, lambda: self._end_of_life(node))

    async def _end_of_life(self, node: Node) -> None:
        left = node.create_time + PREEMPTIBLE_LIFE * self._profile.scale - self._profile.clock()
        await self._profile.sleep(max(left, 0))
        current = self._nodes.get(node.name)
        if current and current.uid == node.uid and current.state == "READY":
            await self.take_back(current, "TERMINATED")
