"""The long-running operations: their records, and waiting for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tpuctl.sim.database import Database, Shelf
from tpuctl.sim.profiles import Profile
from tpuctl.sim.world import names
from tpuctl.sim.world.pages import page
from tpuctl.sim.world.problems import Status, problem
from tpuctl.sim.world.resources import Node, Operation


class Operations:
    """Every operation that has not been deleted; running ones outlive a restart."""

    def __init__(self, database: Database, profile: Profile) -> None:
        self._shelf = Shelf(database, "operation", Operation)
        self._clock = profile.clock
        self._endings: dict[str, asyncio.Event] = {}
        self._running = {one.target: one.name for one in self._shelf.all() if not one.done}

    def get(self, name: str) -> Operation:
        """Return the operation called `name`; raises NOT_FOUND."""
        found = self._shelf.get(name)
        if found is None:
            names.require(name, "operations")
            raise problem("not_found", name=name)
        return found

    def page(self, parent: str, size: int, token: str) -> tuple[list[Operation], str]:
        """Return one page of the operations in a zone, or with `-` in all, and the token of the next."""
        entries = self._shelf.all(names.prefix(parent))
        return page(entries, lambda operation: operation.name, size, token)

    def running(self) -> list[Operation]:
        """Return the operations that have not ended."""
        return [self.get(name) for name in self._running.values()]

    def running_on(self, target: str) -> Operation | None:
        """Return the operation on this node that has not ended; there is at most one."""
        name = self._running.get(target)
        return self.get(name) if name else None

    async def wait(self, name: str, seconds: float | None) -> Operation:
        """Return the operation when it has ended, or after `seconds` as it is then; raises NOT_FOUND."""
        if not self.get(name).done:
            ending = self._endings.setdefault(name, asyncio.Event())
            try:
                await asyncio.wait_for(ending.wait(), seconds)
            except asyncio.TimeoutError:
                pass  # the caller sees that it is not done
        return self.get(name)

    def forget(self, name: str) -> None:
        """Drop the record of an operation that has ended; raises NOT_FOUND, FAILED_PRECONDITION."""
        if not self.get(name).done:
            raise problem("operation_runs", name=name)
        self._shelf.remove(name)

    def begin(
        self, verb: str, node: Node, changes: dict[str, Any] | None = None, fault: Status | None = None
    ) -> Operation:
        """File a new operation on a node that has none running."""
        now = self._clock()
        parent = node.name.partition("/nodes/")[0]
        operation = Operation(
            name=names.new_operation(parent, now),
            verb=verb,
            target=node.name,
            create_time=now,
            before=node.state,
            changes=changes or {},
            fault=fault,
        )
        self._shelf.put(operation)
        self._running[node.name] = operation.name
        return operation

    def request_cancel(self, operation: Operation) -> Operation:
        """File that somebody asked for its end."""
        asked = replace(operation, cancel_requested=True)
        self._shelf.put(asked)
        return asked

    def end(self, operation: Operation, *, result: Node | None = None, error: Status | None = None) -> None:
        """File how it ended, and tell those who wait."""
        current = self.get(operation.name)  # a cancel may have been asked for since
        self._shelf.put(replace(current, end_time=self._clock(), result=result, error=error))
        del self._running[operation.target]
        self._endings.pop(operation.name, asyncio.Event()).set()
