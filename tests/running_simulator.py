"""A simulator in this process, and the result of a command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON that the command printed on stdout."""
        return msgspec.json.decode(self.out)


class RunningSimulator:
    """A simulator on an event loop of its own thread; `call` runs a coroutine there."""

    def __init__(self, folder: Path, **options: Any) -> None:
        from tpuctl.sim.simulator import Simulator

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="simulator")
        self._thread.start()

        async def start() -> Simulator:
            simulator = Simulator(folder, **options)
            await simulator.start()
            return simulator

        self.simulator = self.call(start())
        self.folder = folder
        self.faults = self.simulator.faults
        self.events = self.simulator.events
        self.world = self.simulator.world
        self.gcs = self.simulator.gcs

    def call(self, work: Coroutine[object, None, T]) -> T:
        """Run a coroutine on the simulator's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        """Stop the simulator and its thread."""
        self.call(self.simulator.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
