"""What is in the simulated cloud, seen and changed from a test's own thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tpuctl.errors import DeadlineError, NotFoundError, StateError, nearest
from tpuctl.polling import Backoff, poll

if TYPE_CHECKING:
    from tpuctl.sim.world import Node, QueuedResource
    from tpuctl.sim.world import World as SimulatedWorld

T = TypeVar("T")
WAIT = 60.0
BACKOFF = Backoff(first=0.01, longest=0.2)


class World:
    """The nodes and queued resources of all projects and zones; names are full ones or their last parts."""

    def __init__(self, world: SimulatedWorld, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._world = world
        self._call = call

    def nodes(self) -> list[Node]:
        """Return every node as it is now."""
        return self._on_its_loop(self._world.nodes)

    def node(self, name: str) -> Node:
        """Return one node as it is now; raises NotFoundError."""
        return _called(name, self.nodes(), "node")

    def queued_resources(self) -> list[QueuedResource]:
        """Return every queued resource as it is now."""
        return self._on_its_loop(self._world.queued_resources)

    def queued_resource(self, name: str) -> QueuedResource:
        """Return one queued resource as it is now; raises NotFoundError."""
        return _called(name, self.queued_resources(), "queued resource")

    def preempt(self, name: str, *, notice: float = 0.0) -> None:
        """Take a node back as Google does: a notice, and `notice` seconds of the clock later its end.

        Returns once it is PREEMPTED, so a clock that stands still has to be advanced by another thread.
        Raises NotFoundError, and StateError when the node is not up.
        """
        from tpuctl.sim.world import Problem  # noqa: PLC0415  the simulator is imported when one is started

        try:
            self._call(self._world.preempt(self.node(name).name, notice))
        except Problem as problem:
            raise StateError(problem.status.message) from problem

    def wait_for(self, name: str, state: str, *, timeout: float = WAIT) -> Node:
        """Return a node once it is in `state`; raises DeadlineError after `timeout` seconds of real time."""

        def look() -> Node | None:
            return next((one for one in self.nodes() if _is(one.name, name) and one.state == state), None)

        what = f"the node '{name}' to be {state}"
        try:
            return poll(look, awaiting=what, timeout=timeout, backoff=BACKOFF)
        except DeadlineError as late:
            late.hint = f"It is {self._state(name)}."
            raise

    def wait_until_gone(self, name: str, *, timeout: float = WAIT) -> None:
        """Return once there is no node of that name; raises DeadlineError."""

        def look() -> bool | None:
            return None if any(_is(one.name, name) for one in self.nodes()) else True

        poll(look, awaiting=f"the end of the node '{name}'", timeout=timeout, backoff=BACKOFF)

    def _state(self, name: str) -> str:
        return next((one.state for one in self.nodes() if _is(one.name, name)), "not there")

    def _on_its_loop(self, function: Callable[[], T]) -> T:
        async def ask() -> T:
            return function()

        found: T = self._call(ask())
        return found


Record = TypeVar("Record", "Node", "QueuedResource")


def _called(name: str, records: list[Record], what: str) -> Record:
    found = next((one for one in records if _is(one.name, name)), None)
    if found is None:
        close = nearest(name, [one.name.rpartition("/")[2] for one in records])
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {len(records)}."
        raise NotFoundError(f"There is no {what} '{name}'.", hint=hint)
    return found


def _is(full: str, name: str) -> bool:
    return name in (full, full.rpartition("/")[2])
