"""What takes time in a node's life: each operation from its begin to its end, over restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from tpuctl.sim.database import Database, Shelf
from tpuctl.sim.faults import Faults
from tpuctl.sim.profiles import Profile
from tpuctl.sim.records import Hosts
from tpuctl.sim.world.events import Events
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.problems import Problem, Status, of_rule, problem
from tpuctl.sim.world.resources import Node, Operation
from tpuctl.sim.world.states import CANCELLABLE, TRANSITIONS
from tpuctl.sim.world.tasks import Tasks

logger = logging.getLogger(__name__)

NO_HEALTH = "HEALTH_UNSPECIFIED"


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
        faults: Faults,
        events: Events,
        nodes: Shelf[Node],
        operations: Operations,
    ) -> None:
        self.operations = operations
        self._database = database
        self._profile = profile
        self._hosts = hosts
        self._faults = faults
        self._events = events
        self._nodes = nodes
        self._tasks = Tasks()
        self._work: dict[str, Callable[[Node, Operation], Awaitable[Node | None]]] = {
            "create": self._bring_up,
            "delete": self._delete,
            "update": self._update,
            "stop": self._stop,
            "start": self._bring_up,
        }

    def begin(self, verb: str, node: Node, changes: dict[str, Any] | None = None) -> Operation:
        """Begin an operation on a node, cancelling the one that runs, if any."""
        transition = TRANSITIONS[verb]
        late = self._faults.take(f"tpu.{transition.method}", node.name, late=True)
        if late:
            self._events.note("fault", transition.method, node.name, late.message)
        overtaken = self.operations.running_on(node.name)
        with self._database.transaction():
            if overtaken:
                self.operations.end(overtaken, error=problem("cancelled").status)
            operation = self.operations.begin(verb, node, changes, of_rule(late).status if late else None)
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
        if operation.verb in CANCELLABLE:
            self._launch(asked)

    async def preempt(self, node: Node) -> None:
        """Make a node PREEMPTED, its operation a failure, and stop its hosts."""
        running = self.operations.running_on(node.name)
        with self._database.transaction():
            self._put(replace(node, state="PREEMPTED", health=NO_HEALTH))
            if running:
                status = problem("wrong_state", call="update", state="PREEMPTED").status
                self.operations.end(running, error=status)
        stopping = self._tasks.start(
            node.name, lambda: _to_the_end(self._hosts.stop(node.hosts(), keep_disk=True))
        )
        await asyncio.wait({stopping})
        if not stopping.cancelled():  # a delete may have taken over
            stopping.result()

    async def resume(self) -> None:
        """After a restart, bring the hosts of READY nodes up again and continue the operations."""
        ready = [node for node in self._nodes.all() if node.state == "READY"]
        await asyncio.gather(*(self._revive(node) for node in ready))
        for operation in self.operations.running():
            self._launch(operation)

    async def close(self) -> None:
        """Cancel the tasks; what they worked on is on disk."""
        await self._tasks.close()

    def _launch(self, operation: Operation) -> None:
        self._tasks.start(operation.target, lambda: self._run(operation))

    async def _run(self, operation: Operation) -> None:
        if not self._is_current(operation):
            return
        try:
            await self._wait_its_time(operation)
            after = await self._work[operation.verb](self._node(operation), operation)
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
        if operation.fault:
            await self._profile.pause("failure", operation.create_time)
            raise Problem(operation.fault)
        await self._profile.pause(operation.verb, operation.create_time)

    async def _bring_up(self, node: Node, _: Operation) -> Node:
        await _to_the_end(self._hosts.start(node.hosts(), node.metadata))
        return replace(node, state="READY", health="HEALTHY")

    async def _delete(self, node: Node, _: Operation) -> None:
        await _to_the_end(self._hosts.stop(node.hosts(), keep_disk=False))

    async def _update(self, node: Node, operation: Operation) -> Node:
        changed = node.changed(operation.changes)
        if "metadata" in operation.changes and node.state == "READY":
            await _to_the_end(self._hosts.update_metadata(changed.hosts(), changed.metadata))
        return changed

    async def _stop(self, node: Node, _: Operation) -> Node:
        await _to_the_end(self._hosts.stop(node.hosts(), keep_disk=True))
        return replace(node, state="STOPPED", health=NO_HEALTH)

    async def _fail(self, operation: Operation, error: Status) -> None:
        """A node that could not be created goes; any other is as it was before."""
        node = self._node(operation)
        if operation.verb != "create":
            self._finish(operation, replace(node, state=operation.before), error)
            return
        try:
            await _to_the_end(self._hosts.stop(node.hosts(), keep_disk=False))
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
            self.operations.end(operation, result=None if error else node, error=error)

    async def _revive(self, node: Node) -> None:
        try:
            await self._hosts.start(node.hosts(), node.metadata)
            health = "HEALTHY"
        except Exception:
            logger.exception("the hosts of %s did not come up again", node.name)
            health = "TIMEOUT"
        if health != node.health:
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


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await what the hosts do; a cancel takes effect after it, so that no host is left half up."""
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        if not doing.cancelled():
            doing.exception()  # whoever takes over looks at the hosts afresh
        raise
