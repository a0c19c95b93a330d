"""The clock that can be moved: who sleeps by it wakes at the moment, however the time got there."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tpuctl.errors import UsageError
from tpuctl.sim.clock import Clock


def test_a_still_clock_wakes_at_the_moment_and_not_before() -> None:
    async def story() -> None:
        clock = Clock(still=True)
        begun = clock.now()
        sleeping = asyncio.ensure_future(clock.sleep(10))
        await asyncio.sleep(0)
        clock.advance(9.5)
        await asyncio.sleep(0.01)
        assert not sleeping.done()
        threading.Thread(target=clock.advance, args=(0.5,), daemon=True).start()
        await asyncio.wait_for(sleeping, 60)
        assert clock.now() == begun + 10

    asyncio.run(story())


def test_a_clock_that_goes_can_be_moved_too() -> None:
    async def story() -> None:
        clock = Clock()
        begun = clock.now()
        sleeping = asyncio.ensure_future(clock.sleep(3600))
        await asyncio.sleep(0)
        clock.advance(3600)
        await asyncio.wait_for(sleeping, 60)
        assert clock.now() >= begun + 3600
        await clock.sleep(0.001)
        await clock.sleep(-1)

    asyncio.run(story())


def test_who_is_cancelled_is_not_woken() -> None:
    async def story() -> None:
        clock = Clock(still=True)
        sleeping = asyncio.ensure_future(clock.sleep(1))
        await asyncio.sleep(0)
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)
        assert not clock._sleepers
        clock.advance(1)

    asyncio.run(story())


def test_a_clock_does_not_go_back() -> None:
    clock = Clock(still=True)
    begun = clock.now()
    with pytest.raises(UsageError) as raised:
        clock.advance(-2.5)
    assert raised.value.message == "The clock cannot go back by 2.5 s."
    assert raised.value.hint == "Start another simulator instead."
    clock.advance(0)
    assert clock.now() == begun
