"""A simulated Cloud TPU and the real commands in one thread, where waiting takes no time.

Everything is the real thing but the wire and the hosts: commands, Google's client, the simulated API. Time
passes when a command sleeps, for the API and for the command alike, so the same seed gives the same story.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.protobuf.message import Message

from tests.crashes.channel import WorldChannel
from tests.flows.nodes.memory_provider import MemorySsh
from tests.forks.imports import import_commands
from tests.running_simulator import CommandResult
from tests.sim.tpu.recorded_hosts import RecordedHosts
from tpuctl import clock, parallel, polling
from tpuctl.catalogue.prices import RateList
from tpuctl.cli.main import run
from tpuctl.cloud import endpoints
from tpuctl.cloud.endpoints import Cloud, Endpoints
from tpuctl.cloud.storage import Bucket
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.config import Config
from tpuctl.errors import DeadlineError, HostError
from tpuctl.nodes import Node, SshKey
from tpuctl.sim.clock import Clock
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.settings import DELAYS, Profile
from tpuctl.sim.state import Database
from tpuctl.sim.world import World

T = TypeVar("T")
TURNS = 40
"""Most turns of the event loop while something is due: what never rests is not waited for."""
SCALE = 0.1
"""A create takes 6.5 s of the world's time: long enough to be seen in each of its states."""
PATIENCE = 4000.0
"""Seconds after which a user kills a command that still waits; a race without a limit waits for ever."""
KILLED = -9
"""The exit code of a command that was killed."""
Interference = Callable[[str, int, str], None]
"""Called with a request's method, its number within the command, and `before` or `after` it took effect."""


class Killed(BaseException):
    """Ends a command as `kill -9` does: nothing of it handles this."""


def _with_report(text: str) -> str:
    """Return what a command said together with the report of the bug in it, whose file is deleted soon."""
    named = re.search(r"with the file (\S+\.txt)", text)
    return f"{text}\n{Path(named[1]).read_text()}" if named else text


class CrashWorld:
    """A world, and the commands that use it; `interfere` is called around each request of a command."""

    def __init__(self, folder: Path) -> None:
        self.interfere: Interference = lambda method, number, when: None
        self.requests: list[str] = []
        """Methods of the requests of the command that runs, in order."""
        self.latest: list[str] = []
        """Those of the latest command that has ended."""
        self.up: Sequence[str] = ()
        """The `up` that another laptop runs, too."""
        self.clock_error = timedelta()
        """How far the laptop's clock is ahead, until the command ends."""
        self._loop = asyncio.new_event_loop()
        self._now = 0.0
        self._end = float("inf")
        self._clock = Clock(still=True)
        self._patches = pytest.MonkeyPatch()
        self._database = Database(folder / "world.db")
        self.faults = FaultRegistry(self._clock.now)
        self.hosts = RecordedHosts()
        self.world = self.do(self._build())

    async def _build(self) -> World:
        pace = Profile(DELAYS["real"], SCALE, self._clock.now, self._clock.sleep)
        world = World(self._database, pace, self.hosts, self.faults)
        await world.resume()
        return world

    def __enter__(self) -> CrashWorld:
        import_commands()  # a module that is imported now would keep this world's `sleep` as a default
        patch = self._patches.setattr
        patch(time, "sleep", self.pass_time)
        patch(time, "monotonic", lambda: self._now)
        patch(clock, "now", lambda: self.time + self.clock_error)
        for function in (polling.poll, polling.retry):
            self._patches.setitem(function.__kwdefaults__, "sleep", self.pass_time)
        for function in (polling.poll, polling.retry, polling.time_left):
            self._patches.setitem(function.__kwdefaults__, "clock", lambda: self._now)
        patch(parallel.fanout, "__defaults__", (1,))  # one thread, so that requests come in one order
        patch(endpoints, "connect", lambda config, warn=None: _WorldCloud(config, self))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.undo()
        self.do(self.world.close())
        self._loop.close()
        self._database.close()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due."""
        if self._now > self._end:
            raise Killed
        self._now += seconds
        self._clock.advance(seconds)
        self.do(_turns())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the world."""
        return self._loop.run_until_complete(work)

    def tpuctl(self, *arguments: str) -> CommandResult:
        """Run a command, also while another waits for an answer; its exit code is KILLED if it was killed."""
        outer, self.requests = self.requests, []
        end, self._end = self._end, min(self._end, self._now + PATIENCE)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = run(list(arguments))
            except Killed:
                code = KILLED
        self.latest, self.requests, self._end = self.requests, outer, end
        self.clock_error = timedelta()
        assert "a bug in tpuctl" not in err.getvalue(), _with_report(err.getvalue())
        return CommandResult(code, out.getvalue(), err.getvalue())

    def send(self, method: str, deliver: Callable[[], T]) -> T:
        """Deliver a request of a command, unless `interfere` raises something."""
        number = len(self.requests)
        self.requests.append(method)
        self.interfere(method, number, "before")
        answer = deliver()
        self.interfere(method, number, "after")
        return answer

    @property
    def time(self) -> datetime:
        """The right time: the provider's."""
        return datetime.fromtimestamp(self._clock.now(), UTC)

    @property
    def billing(self) -> list[str]:
        """The full names of everything that bills or may come to bill."""
        resources = [*self.world.nodes.all(), *self.world.queued_resources.all()]
        return sorted(resource.name for resource in resources)

    @cached_property
    def provider(self) -> CloudTpu:
        """The client of all commands of this world: building one takes longer than most of them."""
        channel = WorldChannel(self.world, self.do, self._send_message)
        return CloudTpu(tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel)), "sim-project")

    def _send_message(self, method: str, deliver: Callable[[], Message]) -> Message:
        return self.send(method, deliver)


class Worlds:
    """Worlds one after another, each with files of its own."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._environment = environment
        self._number = 0

    @contextmanager
    def new(self, note: str = "") -> Iterator[CrashWorld]:
        """Build a world without a node; an error within the block gets the note."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        self._environment.setenv("HOME", str(folder))
        self._environment.setenv("TPUCTL_STATE", str(folder / "state"))
        with CrashWorld(folder) as world:
            try:
                yield world
            except BaseException as error:
                error.add_note(note)
                raise


class _WorldCloud(Cloud):
    """The clients of a command."""

    def __init__(self, config: Config, world: CrashWorld) -> None:
        super().__init__(config, Endpoints("sim"))
        self._world = world

    @cached_property
    def provider(self) -> CloudTpu:  # type: ignore[override]  # the class itself
        return self._world.provider

    def server_time(self) -> datetime:
        """Return the provider's time, by a request like any other."""
        return self._world.send("time", lambda: self._world.time)

    @property
    def bucket(self) -> Bucket:  # type: ignore[override]  # none
        """No answer, which no command that creates or deletes a TPU may depend on."""
        raise DeadlineError("No answer from the bucket.")

    def read_rates(self, generation: str) -> RateList:
        """No answer: a command works without prices."""
        raise DeadlineError("No answer from the price list.")

    @cached_property
    def ssh(self) -> WorldSsh:  # type: ignore[override]  # hosts without servers
        return WorldSsh(self._world)


class WorldSsh(MemorySsh):
    """Hosts that answer at once: each connection is a request like any other."""

    def __init__(self, world: CrashWorld) -> None:
        super().__init__()
        self._world = world

    def login_key(self) -> SshKey:
        return SshKey("ada", "ssh-ed25519 AAAA")

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[MemorySsh]:
        self._world.send("ssh", lambda: None)
        if node.addresses[worker] not in self._world.hosts.up:
            raise HostError(f"Worker {worker} of '{node.name}' does not answer.")
        yield self


async def _turns() -> None:
    """Let everything happen that is due."""
    loop = asyncio.get_running_loop()
    for _ in range(TURNS):
        await asyncio.sleep(0)
        if not loop._ready:  # type: ignore[attr-defined]  # nothing else says that the loop rests
            break
