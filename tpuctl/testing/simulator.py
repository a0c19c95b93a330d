"""Runs a simulator in a test's process: its addresses, its nodes, for as long as a `with` block."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from tpuctl.errors import DeadlineError, NotFoundError, StateError, nearest
from tpuctl.polling import Backoff, poll
from tpuctl.simulator_folder import check_installed

if TYPE_CHECKING:
    import asyncio

    from tpuctl.faults import Scenario
    from tpuctl.sim.clock import Clock
    from tpuctl.sim.events import Event, Events
    from tpuctl.sim.faults import FaultRegistry
    from tpuctl.sim.simulator import Simulator as SimulatedCloud
    from tpuctl.sim.world import Node, QueuedResource
    from tpuctl.sim.world import World as SimulatedWorld


@dataclass(frozen=True)
class Endpoints:
    """Addresses on loopback, and the names of the project and the bucket that exist from the start."""

    project: str
    """The project that everything belongs to; any other name works too."""
    bucket: str
    """A bucket of it."""
    tpu_grpc: str
    """The Cloud TPU API over gRPC, without TLS: `127.0.0.1:PORT`."""
    tpu_rest: str
    """The Cloud TPU API over REST: `http://127.0.0.1:PORT`, for `client_options={"api_endpoint": ...}`."""
    storage: str
    """Cloud Storage: `http://127.0.0.1:PORT`, for `client_options={"api_endpoint": ...}`."""
    compute_rest: str
    """The Compute Engine API, as far as it is simulated: `http://127.0.0.1:PORT`."""
    metadata: str
    """The metadata server of this machine: `127.0.0.1:PORT`."""
    proxy: str
    """The HTTP proxy that passes https://*.googleapis.com to the simulator."""
    ca_file: Path
    """The certificates that programs behind the proxy must trust."""
    ssh_config: Path
    """OpenSSH's configuration, with the addresses of all hosts that are up: `ssh -F FILE ADDRESS`."""
    hosts_file: Path
    """The same as JSON: address of a host -> host and port to connect to."""

    @classmethod
    def from_published(cls, published: Mapping[str, object]) -> Endpoints:
        """Return the endpoints that a simulator publishes."""
        return cls(
            project=str(published["project"]),
            bucket=str(published["bucket"]),
            tpu_grpc=str(published["tpu_grpc"]),
            tpu_rest=str(published["tpu_rest"]),
            storage=str(published["storage"]),
            compute_rest=str(published["compute_rest"]),
            metadata=str(published["metadata"]),
            proxy=str(published["proxy"]),
            ca_file=Path(str(published["ca_file"])),
            ssh_config=Path(str(published["ssh_config"])),
            hosts_file=Path(str(published["hosts_file"])),
        )


T = TypeVar("T")
WAIT = 60.0
BACKOFF = Backoff(first=0.01, longest=0.2)


class CallOnLoop(Protocol):
    """Runs a coroutine on the simulator's event loop and returns its result."""

    def __call__(self, work: Coroutine[object, None, T]) -> T: ...


class World:
    """The nodes and queued resources of all projects and zones; names are full ones or their last parts."""

    def __init__(self, world: SimulatedWorld, call: CallOnLoop) -> None:
        self._world = world
        self._call = call

    def nodes(self) -> list[Node]:
        """Return every node as it is now."""
        return self._on_its_loop(self._world.nodes.all)

    def node(self, name: str) -> Node:
        """Return one node as it is now; raises NotFoundError."""
        return _get(name, self.nodes(), "node")

    def queued_resources(self) -> list[QueuedResource]:
        """Return every queued resource as it is now."""
        return self._on_its_loop(self._world.queued_resources.all)

    def queued_resource(self, name: str) -> QueuedResource:
        """Return one queued resource as it is now; raises NotFoundError."""
        return _get(name, self.queued_resources(), "queued resource")

    def preempt(self, name: str, *, notice: float = 0.0, grace: float = 30.0) -> None:
        """Take a node back as Google does: a notice, SIGTERM for its programs, SIGKILL for what still runs.

        SIGTERM comes `notice` seconds of the clock after the notice, SIGKILL `grace` seconds after SIGTERM.
        Returns once it is PREEMPTED, so a clock that stands still has to be advanced by another thread.
        Raises NotFoundError, and StateError when the node is not up.
        """
        from tpuctl.sim.world import ApiError  # noqa: PLC0415  the simulator is imported when one is started

        try:
            self._call(self._world.preempt(self.node(name).name, notice, grace))
        except ApiError as error:
            raise StateError(error.status.message) from error

    def wait_for(self, name: str, state: str, *, timeout: float = WAIT) -> Node:
        """Return a node once it is in `state`; raises DeadlineError after `timeout` seconds of real time."""

        def check() -> Node | None:
            node = _find(name, self.nodes())
            return node if node and node.state == state else None

        try:
            return poll(check, awaiting=f"the node '{name}' to be {state}", timeout=timeout, backoff=BACKOFF)
        except DeadlineError as error:
            node = _find(name, self.nodes())
            error.hint = f"It is {node.state}." if node else "It does not exist."
            raise

    def wait_until_gone(self, name: str, *, timeout: float = WAIT) -> None:
        """Return once there is no node of that name; raises DeadlineError."""

        def check() -> bool | None:
            return True if _find(name, self.nodes()) is None else None

        poll(check, awaiting=f"the end of the node '{name}'", timeout=timeout, backoff=BACKOFF)

    def _on_its_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._call(call())


Record = TypeVar("Record", "Node", "QueuedResource")


def _get(name: str, records: list[Record], noun: str) -> Record:
    record = _find(name, records)
    if record is None:
        close = nearest(name, [record.name.rpartition("/")[2] for record in records])
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {len(records)}."
        raise NotFoundError(f"There is no {noun} '{name}'.", hint=hint)
    return record


def _find(name: str, records: list[Record]) -> Record | None:
    """The record of a full name, or of its last part."""
    return next((record for record in records if name in (record.name, record.name.rpartition("/")[2])), None)


CALL_TIMEOUT = 120.0
SIMULATOR = "sim"
"""The simulator's folder in the folder of tpuctl's state, TPUCTL_STATE."""
AUTHORITY = Path("tls", "authority.pem")
"""The key of its certificate authority, in the folder of a simulator."""

_authority: dict[str, bytes] = {}
"""The key of the first simulator in this process, as `key`."""


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
