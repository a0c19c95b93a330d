"""The long-running operations: their records, and waiting for them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any

from tpuctl.sim.settings import Profile
from tpuctl.sim.state.database import Database, RecordTable
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import Status, problem
from tpuctl.sim.world.fault_errors import FREELY, Ending
from tpuctl.sim.world.resources import PLAINLY, Asked, Node, Operation, QueuedResource

KEPT = 1_000
"""Operations that have ended and can still be asked for; how long Google keeps them was not found."""


class Operations:
    """Every operation that has not been deleted, the oldest that have ended aside; all outlive a restart."""

    def __init__(self, database: Database, profile: Profile) -> None:
        self._database = database
        self._shelf = RecordTable(database, "operation", Operation)
        self._clock = profile.clock
        self._endings: dict[str, asyncio.Event] = {}
        self._running = {one.target: one.name for one in self._shelf.all() if not one.done}
        self._asked = {_key(one): one.name for one in self._shelf.all() if one.asked.request_id}
        ended = sorted((one for one in self._shelf.all() if one.done), key=lambda one: one.end_time or 0.0)
        self._ended = deque(one.name for one in ended)

    def get(self, name: str) -> Operation:
        """Return the operation called `name`; raises NOT_FOUND."""
        found = self._shelf.get(name)
        if found is None:
            names.require(name, "operations")
            raise problem("not_found", name=name)
        return found

    def all(self, prefix: str) -> list[Operation]:
        """Return the operations whose names start with `prefix`."""
        return self._shelf.all(prefix)

    def running(self) -> list[Operation]:
        """Return the operations that have not ended."""
        return [self.get(name) for name in self._running.values()]

    def find(self, name: str) -> Operation | None:
        """Return the operation called `name`, or None once it has been deleted."""
        return self._shelf.get(name)

    def asked_before(self, verb: str, target: str, asked: Asked) -> Operation | None:
        """Return the operation that the same request, by its id, has begun already."""
        name = self._asked.get((verb, target, asked.request_id))
        return self._shelf.get(name) if name else None

    def running_on(self, target: str) -> Operation | None:
        """Return the operation on this node or queued resource that has not ended: one at most."""
        name = self._running.get(target)
        return self.get(name) if name else None

    async def wait(self, name: str, seconds: float | None) -> Operation:
        """Return the operation when it has ended, or after `seconds` as it is then; raises NOT_FOUND."""
        if not self.get(name).done:
            ending = self._endings.setdefault(name, asyncio.Event())
            try:
                await asyncio.wait_for(ending.wait(), seconds)
            except TimeoutError:
                pass  # the caller sees that it is not done
        return self.get(name)

    def forget(self, name: str) -> None:
        """Drop the record of an operation that has ended; raises NOT_FOUND, FAILED_PRECONDITION."""
        if not self.get(name).done:
            raise problem("operation_runs", name=name)
        self._drop(name)

    def begin(
        self,
        verb: str,
        target: Node | QueuedResource,
        changes: dict[str, Any] | None = None,
        ending: Ending = FREELY,
        asked: Asked = PLAINLY,
    ) -> Operation:
        """File a new operation on what has none running."""
        now = self._clock()
        operation = Operation(
            name=names.new_operation(names.parent(target.name), now),
            verb=verb,
            target=target.name,
            create_time=now,
            before=target.state,
            changes=changes or {},
            fault=ending.error,
            delay=ending.delay,
            held=ending.held,
            asked=asked,
        )
        self._shelf.put(operation)
        self._database.on_rollback(lambda: self._running.pop(target.name, None))
        self._running[target.name] = operation.name
        if asked.request_id:
            self._asked[_key(operation)] = operation.name
        return operation

    def request_cancel(self, operation: Operation) -> Operation:
        """File that somebody asked for its end."""
        asked = replace(operation, cancel_requested=True)
        self._shelf.put(asked)
        return asked

    def end(
        self,
        operation: Operation,
        *,
        result: Node | QueuedResource | None = None,
        error: Status | None = None,
    ) -> None:
        """File how it ended, and tell those who wait."""
        current = self.get(operation.name)  # a cancel may have been asked for since
        ended = replace(current, end_time=self._clock(), error=error)
        if isinstance(result, QueuedResource):
            self._shelf.put(replace(ended, queued=result))
        else:
            self._shelf.put(replace(ended, result=result))
        self._database.on_rollback(lambda: self._running.update({operation.target: operation.name}))
        del self._running[operation.target]
        self._endings.pop(operation.name, asyncio.Event()).set()
        self._ended.append(operation.name)
        while len(self._ended) > KEPT:
            self._drop(self._ended.popleft())

    def _drop(self, name: str) -> None:
        """Drop a record, unless it has gone already, or its end was rolled back."""
        found = self._shelf.get(name)
        if found and found.done:
            self._asked.pop(_key(found), None)
            self._shelf.remove(name)


def _key(operation: Operation) -> tuple[str, str, str]:
    return operation.verb, operation.target, operation.asked.request_id
