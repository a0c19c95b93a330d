"""Plays a story of nodes in a world of its own, with hosts and a clock that the story holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.sim.tpu.queue.timed_world import opened
from tests.sim.tpu.recorded_hosts import ManualTime, RecordedHosts
from tpuctl.sim.world import World

NodeStory = Callable[[World, ManualTime, RecordedHosts], Awaitable[None]]


def play(folder: Path, story: NodeStory, hosts: RecordedHosts | None = None) -> None:
    """Play a story in a world whose database is in a folder."""

    async def run() -> None:
        time, given = ManualTime(), hosts or RecordedHosts()
        async with opened(folder / "world.sqlite", time, given) as world:
            await story(world, time, given)

    asyncio.run(asyncio.wait_for(run(), 60))
