"""Runs background tasks by resource name: at most one for each; a new one replaces the old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Task = asyncio.Task[None]


class Tasks:
    """The running tasks, by the name of the node or queued resource that they work on."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[Task]] = {}

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> Task:
        """Cancel the tasks of the same name, wait for their end, then await `run()`."""
        running = self._tasks.setdefault(name, set())
        earlier = set(running)
        for task in earlier:
            task.cancel()
        task = asyncio.get_running_loop().create_task(_after(earlier, run))
        running.add(task)
        task.add_done_callback(lambda ended: self._forget(name, ended))
        return task

    async def close(self) -> None:
        """Cancel every task and wait until all have ended."""
        tasks = [task for running in self._tasks.values() for task in running]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, name: str, task: Task) -> None:
        running = self._tasks[name]
        running.discard(task)
        if not running:
            del self._tasks[name]


async def _after(earlier: set[Task], run: Callable[[], Awaitable[None]]) -> None:
    if earlier:
        await asyncio.wait(earlier)
    await run()
