"""A simulator in this process, the command line as a function, and the result of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tests.event_loops.thread import LoopThread
from tpuctl.cli.main import run

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


def command_line(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Return the command line as a function; an error that is a bug fails the test."""

    def call(*arguments: str) -> CommandResult:
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        assert "a bug in tpuctl" not in captured.err, captured.err
        return CommandResult(code, captured.out, captured.err)

    return call


class RunningSimulator:
    """A simulator on an event loop of its own thread; `call` runs a coroutine there.

    Its hosts publish guest attributes at once unless `options` have a `publish_delay`.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        from tpuctl.sim.simulator import Simulator

        self._thread = LoopThread()

        async def start() -> Simulator:
            simulator = Simulator(folder, **{"publish_delay": 0.0, **options})
            await simulator.start()
            return simulator

        self.simulator = self._thread.start(start())
        self.folder = folder
        self.faults = self.simulator.faults
        self.events = self.simulator.events
        self.world = self.simulator.world
        self.gcs = self.simulator.gcs

    def call(self, work: Coroutine[object, None, T]) -> T:
        """Run a coroutine on the simulator's loop and return its result."""
        return self._thread.run(work)

    def break_hosts(self, kind: str, **options: object) -> None:
        """Put a fault of hosts in force, and wait until they show it, which takes a busy machine a moment."""
        from tpuctl.sim.hosts.faults import EFFECTS

        fault = self.faults.add(kind, **options)

        async def broken() -> None:
            async with asyncio.timeout(60):
                while not (targets := self._targets(fault.id)) or not all(
                    EFFECTS[kind] <= effects
                    for host, effects in (await self._effects()).items()
                    if host in targets
                ):
                    await asyncio.sleep(0.01)

        self.call(broken())

    def heal_hosts(self) -> None:
        """End every fault, and wait until the hosts have recovered."""
        self.faults.clear()

        async def healed() -> None:
            async with asyncio.timeout(60):
                while any((await self._effects()).values()):
                    await asyncio.sleep(0.01)

        self.call(healed())

    def _targets(self, identifier: str) -> set[str]:
        """Return the hosts that a fault has fired on."""
        return {host for fault in self.faults.all() if fault.id == identifier for host in fault.targets}

    async def _effects(self) -> dict[str, frozenset[str]]:
        """Return what faults do to each host, as soon as none is about to change."""
        effects = {}
        for (uid, worker), running in list(self.simulator.hosts._running.items()):
            async with running.faults._lock:
                effects[f"{uid}/{worker}"] = running.faults._effects
        return effects

    def close(self) -> None:
        """Stop the simulator and its thread."""
        self._thread.finish(self.simulator.close())
