"""Reads and changes the nodes and queued resources of a simulator from a test's thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

from tpuctl.errors import DeadlineError, NotFoundError, StateError, nearest
from tpuctl.polling import Backoff, poll

if TYPE_CHECKING:
    from tpuctl.sim.world import Node, QueuedResource
    from tpuctl.sim.world import World as SimulatedWorld

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
