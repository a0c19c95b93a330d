"""A world with queued resources for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sim.tpu.queue.timed_world import Story, opened
from tests.sim.tpu.recorded_hosts import ManualTime


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Plays a story in a world of its own."""

    async def run(story: Story) -> None:
        time = ManualTime()
        async with opened(tmp_path / "world.sqlite", time) as world:
            await story(world, time)

    return lambda story: asyncio.run(run(story))
