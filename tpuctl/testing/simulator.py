"""Runs a simulator in a test's process, for as long as a `with` block."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tpuctl.errors import StateError
from tpuctl.polling import poll
from tpuctl.simulator_folder import check_installed
from tpuctl.testing.endpoints import Endpoints
from tpuctl.testing.world import BACKOFF, WAIT, World

if TYPE_CHECKING:
    import asyncio

    from tpuctl.faults import Scenario
    from tpuctl.sim.clock import Clock
    from tpuctl.sim.events import Event, Events
    from tpuctl.sim.faults import FaultRegistry
    from tpuctl.sim.simulator import Simulator as SimulatedCloud

CALL_TIMEOUT = 120.0
SIMULATOR = "sim"
"""The simulator's folder in the folder of tpuctl's state, TPUCTL_STATE."""
AUTHORITY = Path("tls", "authority.pem")
"""The key of its certificate authority, in the folder of a simulator."""

_authority: dict[str, bytes] = {}
"""The key of the first simulator in this process, as `key`."""

T = TypeVar("T")


class Simulator:
    """`with Simulator() as sim:` is a Google Cloud of your own: Cloud TPU API, Cloud Storage, hosts with SSH.

    Its services run in a thread of this process, on free ports of loopback, until the end of the block; then
    every program on its hosts has ended and its threads and files are gone. Several can run side by side.

    `folder` keeps the state for a later simulator; by default it is a temporary folder. `speed` is `instant`,
    or `real` for transitions that take as long as Google's. `still` stops its clock until `clock.advance`;
    else the clock follows the machine's and can be advanced. `scenario` is a TOML file of faults or its text.
    Raises ConfigError when the `sim` extra is not installed.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        speed: str = "instant",
        still: bool = False,
        scenario: Path | str | None = None,
    ) -> None:
        self._folder = folder
        self._speed = speed
        self._still = still
        self._scenario = scenario
        self._place = Path()
        self._stack = ExitStack()
        self._cloud: SimulatedCloud | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Simulator:
        check_installed()
        if self._cloud:
            raise StateError("This simulator runs already.", hint="Use one 'with Simulator()' for each.")
        with ExitStack() as stack:
            folder = self._folder or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="tpuctl-")), SIMULATOR
            )
            self._start_loop(stack)
            self._start(folder, stack)
            self._place = folder
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def endpoints(self) -> Endpoints:
        """The addresses of its services."""
        return Endpoints.from_published(self._running.endpoints)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that point unmodified clients in another process to it: see `environ`.

        gcloud, gsutil, gcsfs, google-cloud-*, tensorstore and TensorFlow need nothing else. Nor does tpuctl,
        unless `folder` has another name than `sim`.
        """
        own = {"TPUCTL_TARGET": "sim", "TPUCTL_STATE": str(self._place.absolute().parent)}
        return {
            **self._running.endpoints["environment"],
            **(own if self._place.name == SIMULATOR else {}),
        }

    def environ(self, **more: str) -> dict[str, str]:
        """Return this process's environment updated by `environment` and `more`, for `subprocess`."""
        return {**os.environ, **self.environment, **more}

    @property
    def world(self) -> World:
        """Its nodes and queued resources."""
        return World(self._running.world, self._call)

    @property
    def faults(self) -> FaultRegistry:
        """Its faults: `sim.faults.add("stockout", count=2)`; docs/faults.md has all kinds."""
        return self._running.faults

    @property
    def events(self) -> Events:
        """Every request, transition and fault so far, in order: `sim.events.find(kind="fault")`."""
        return self._running.events

    def wait_for_event(self, *, timeout: float = WAIT, **patterns: str) -> Event:
        """Return the first event whose fields match these shell patterns, once there is one.

        `sim.wait_for_event(what="objects.create", resource="*/checkpoint-*")`; raises DeadlineError after
        `timeout` seconds of real time.
        """

        def first_match() -> Event | None:
            return next(iter(self.events.find(**patterns)), None)

        fields = " ".join(f"{name}={pattern}" for name, pattern in patterns.items())
        return poll(first_match, awaiting=f"an event with {fields}", timeout=timeout, backoff=BACKOFF)

    @property
    def clock(self) -> Clock:
        """Its time: `sim.clock.advance(3600)` makes it an hour later for nodes, queues and faults."""
        return self._running.clock

    def _start_loop(self, stack: ExitStack) -> None:
        import asyncio  # noqa: PLC0415  pytest loads this module in every run

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="tpuctl simulator", daemon=True)
        thread.start()

        def end() -> None:
            self._call(loop.shutdown_default_executor())
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            self._loop = None

        self._loop = loop
        stack.callback(end)

    def _start(self, folder: Path, stack: ExitStack) -> None:
        from tpuctl.config.files import use_plain_letters  # noqa: PLC0415

        use_plain_letters()  # before what imports protobuf
        from tpuctl.sim.clock import Clock  # noqa: PLC0415
        from tpuctl.sim.simulator import Simulator as SimulatedCloud  # noqa: PLC0415

        scenario = _scenario(self._scenario)
        _share_authority(folder)

        async def start() -> SimulatedCloud:
            cloud = SimulatedCloud(folder, speed=self._speed, clock=Clock(still=self._still))
            try:
                if scenario:
                    cloud.faults.load(scenario)
                await cloud.start()
            except BaseException:
                await cloud.close()
                raise
            return cloud

        self._cloud = cloud = self._call(start())
        _authority.setdefault("key", (folder / AUTHORITY).read_bytes())
        stack.callback(self._close, cloud)

    def _close(self, cloud: SimulatedCloud) -> None:
        self._cloud = None
        self._call(cloud.close())

    @property
    def _running(self) -> SimulatedCloud:
        if self._cloud is None:
            raise StateError("The simulator is not running.", hint="Use it inside of its 'with' block.")
        return self._cloud

    def _call(self, work: Coroutine[object, None, T]) -> T:
        """Run a coroutine on the simulator's event loop and return its result."""
        import asyncio  # noqa: PLC0415

        assert self._loop is not None, "only called while it runs"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT)


def _scenario(source: Path | str | None) -> Scenario | None:
    from tpuctl.faults import load_scenario, read_scenario  # noqa: PLC0415

    if isinstance(source, Path):
        return load_scenario(source)
    return read_scenario(source) if source else None


def _share_authority(folder: Path) -> None:
    """Give all simulators of this process one authority: gRPC reads the trusted certificates only once."""
    from tpuctl.atomic_files import PRIVATE, replace_file  # noqa: PLC0415

    path = folder / AUTHORITY
    if "key" in _authority and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [_authority["key"]], mode=PRIVATE)
