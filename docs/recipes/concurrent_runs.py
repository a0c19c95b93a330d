"""Wait for several runs at once in a program with asyncio."""

import asyncio

import tpuctl


async def wait(client: tpuctl.Client, name: str) -> str:
    """Return how a run ended; each call that asks a service is in a thread."""
    run = await asyncio.to_thread(client.run, name)
    end = await asyncio.to_thread(run.wait)
    return end.outcome


async def wait_for_all(client: tpuctl.Client, names: list[str]) -> list[str]:
    """Return how each run ended."""
    return await asyncio.gather(*(wait(client, name) for name in names))
