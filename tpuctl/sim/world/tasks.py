"""What goes on in the background: at most one task a node, and a new one takes over from the old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Task = asyncio.Task[None]


class Tasks:
    """The running tasks, by the name of what they work on."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[Task]] = {}

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> Task:
        """Run `work`, once whatever ran under the same name has been cancelled and is over."""
        running = self._tasks.setdefault(name, set())
        earlier = set(running)
        for task in earlier:
            task.cancel()
        task = asyncio.get_running_loop().create_task(_after(earlier, work))
        running.add(task)
        task.add_done_callback(lambda done: self._forget(name, done))
        return task

    async def close(self) -> None:
        """Cancel every task and wait until all are over."""
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


async def _after(earlier: set[Task], work: Callable[[], Awaitable[None]]) -> None:
    if earlier:
        await asyncio.wait(earlier)
    await work()
