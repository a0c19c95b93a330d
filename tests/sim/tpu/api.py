"""A simulated Cloud TPU API on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import grpc
from aiohttp import web
from google.api_core.future.polling import DEFAULT_POLLING

from tests.event_loops.thread import LoopThread
from tests.sim.tpu.recorded_hosts import RecordedHosts
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.settings import Profile
from tpuctl.sim.state import Database
from tpuctl.sim.tpu import grpc_api, rest_api
from tpuctl.sim.world import World

T = TypeVar("T")
POLLING = DEFAULT_POLLING.with_delay(0.01, 0.1).with_timeout(60)


class Api:
    """One world over gRPC and REST, served by a thread of its own."""

    def __init__(self, database: Path, pace: Profile) -> None:
        self.hosts = RecordedHosts()
        self.faults = FaultRegistry()
        self._database = Database(database)
        self._thread = LoopThread()
        self.world: World = self._thread.start(self._serve(pace))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine where the world lives."""
        return self._thread.run(work)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the world is as it should be."""

        async def look() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.run(look())

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine where the world lives."""
        return self._thread.submit(work)

    def close(self) -> None:
        self._thread.finish(self._stop())
        self._database.close()

    async def _serve(self, pace: Profile) -> World:
        world = World(self._database, pace, self.hosts, self.faults)
        await world.resume()
        self._grpc = grpc.aio.server()
        self._grpc.add_generic_rpc_handlers(grpc_api.handlers(world))
        self.grpc_address = f"127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        await self._grpc.start()
        self._rest = web.AppRunner(rest_api.application(world))
        await self._rest.setup()
        await web.TCPSite(self._rest, "127.0.0.1", 0).start()
        self.rest_address = f"http://127.0.0.1:{self._rest.addresses[0][1]}"
        return world

    async def _stop(self) -> None:
        await self._grpc.stop(None)
        await self._rest.cleanup()
        await self.world.close()
