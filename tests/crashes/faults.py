"""The faults of the matrix: what may happen to a command at each of its requests."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import grpc

from tests.crashes.channel import RefusedCall
from tests.crashes.world import CrashWorld, Interference, Killed
from tpuctl.cli.main import end_on_signal
from tpuctl.errors import DeadlineError, HostError
from tpuctl.sim.world import ApiError

NAME = "n1"
ZONE = "europe-west4-a"
NODE = f"projects/sim-project/locations/{ZONE}/nodes/{NAME}"
UP = ("up", "v3-8", "--name", NAME, "--zone", ZONE, "--yes")
DOWN = ("down", NAME, "--yes")
HOUR = 3600.0
NO_GRPC = {"ssh": HostError, "time": DeadlineError}
"""Requests that are not of the API -> what the command gets instead of an answer."""


@dataclass(frozen=True)
class Fault:
    """What happens around one request of a command."""

    name: str
    act: Callable[[CrashWorld, str], None]
    """Called with the request's method; may raise what the command then gets instead of the answer."""
    when: str = "before"
    """`before` the request takes effect, or `after`."""
    lasts: bool = False
    """Also with every later request of the command."""
    methods: tuple[str, ...] = ()
    """Methods that it can happen to; empty for all."""

    def interference(self, world: CrashWorld, step: int) -> Interference:
        """Return what lets it happen at a request, given by its number, or at the next that it can meet."""

        def interfere(method: str, number: int, when: str) -> None:
            if when != self.when or number < step or method not in (self.methods or method):
                return
            world.interfere = nothing  # what it does sends requests of its own
            try:
                self.act(world, method)
            finally:
                world.interfere = interfere if self.lasts else nothing

        return interfere


def nothing(method: str, number: int, when: str) -> None:
    """Interfere with nothing."""


def _raise(error: Callable[[], BaseException]) -> Callable[[CrashWorld, str], None]:
    def act(world: CrashWorld, method: str) -> None:
        raise error()

    return act


def _refuse(code: grpc.StatusCode, text: str = "The fault of a test.") -> Callable[[CrashWorld, str], None]:
    def act(world: CrashWorld, method: str) -> None:
        raise NO_GRPC[method]("No answer.") if method in NO_GRPC else RefusedCall(code, text)

    return act


def _terminate(world: CrashWorld, method: str) -> None:
    """Send this process SIGTERM, handled as the real command handles it."""
    before = signal.signal(signal.SIGTERM, end_on_signal)
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def _wrong_clock(error: timedelta) -> Callable[[CrashWorld, str], None]:
    def act(world: CrashWorld, method: str) -> None:
        world.clock_error = error

    return act


def _silent_hosts(world: CrashWorld, method: str) -> None:
    if method == "ssh":
        raise HostError("No answer.")


def _add(kind: str, **options: object) -> Callable[[CrashWorld, str], None]:
    def act(world: CrashWorld, method: str) -> None:
        world.faults.add(kind, **options)

    return act


def _preempt(world: CrashWorld, method: str) -> None:
    for node in world.world.nodes.all():
        try:
            world.do(world.world.preempt(node.name))
        except ApiError:
            pass  # a state in which no node is preempted


def _delete(world: CrashWorld, method: str) -> None:
    for node in world.world.nodes.all():
        try:
            world.do(_on_loop(lambda name=node.name: world.world.nodes.delete(name)))
        except ApiError:
            pass  # being deleted
    world.pass_time(10)


async def _on_loop(act: Callable[[], object]) -> None:
    act()


def _run(*arguments: str) -> Callable[[CrashWorld, str], None]:
    """Another laptop runs a whole command meanwhile."""

    def act(world: CrashWorld, method: str) -> None:
        world.tpuctl(*arguments)

    return act


def _run_up(world: CrashWorld, method: str) -> None:
    """Another laptop runs the same `up` meanwhile."""
    world.tpuctl(*world.up)


CODES = grpc.StatusCode
FAULTS = {
    fault.name: fault
    for fault in (
        Fault("killed before", _raise(Killed)),
        Fault("killed after", _raise(Killed), "after"),
        Fault("interrupted before", _raise(KeyboardInterrupt)),
        Fault("interrupted after", _raise(KeyboardInterrupt), "after"),
        Fault("SIGTERM before", _terminate),
        Fault("SIGTERM after", _terminate, "after"),
        Fault("clock an hour ahead", _wrong_clock(timedelta(hours=1)), lasts=True),
        Fault("clock an hour behind", _wrong_clock(timedelta(hours=-1)), lasts=True),
        Fault("request lost", _refuse(CODES.DEADLINE_EXCEEDED)),
        Fault("answer lost", _refuse(CODES.DEADLINE_EXCEEDED), "after"),
        Fault("503 before", _refuse(CODES.UNAVAILABLE)),
        Fault("503 after", _refuse(CODES.UNAVAILABLE), "after"),
        Fault("503 from here on", _refuse(CODES.UNAVAILABLE), lasts=True),
        Fault("503 after, from here on", _refuse(CODES.UNAVAILABLE), "after", lasts=True),
        Fault("INTERNAL before", _refuse(CODES.INTERNAL)),
        Fault("INTERNAL after", _refuse(CODES.INTERNAL), "after"),
        Fault("INTERNAL from here on", _refuse(CODES.INTERNAL), lasts=True),
        Fault("ABORTED from here on", _refuse(CODES.ABORTED), lasts=True),
        Fault("ABORTED", _refuse(CODES.ABORTED)),
        Fault("permission lost", _refuse(CODES.PERMISSION_DENIED), lasts=True),
        Fault("credentials expired", _refuse(CODES.UNAUTHENTICATED), lasts=True),
        Fault("zone silent", _add("unreachable", zone=ZONE)),
        Fault("stockout late", _add("stockout", zone=ZONE), methods=("ListAcceleratorTypes", "CreateNode")),
        Fault(
            "create refused", _refuse(CODES.RESOURCE_EXHAUSTED, "There is no more capacity in the zone"),
            methods=("CreateNode",),
        ),
        Fault("quota", _add("quota", limit=0), methods=("ListAcceleratorTypes", "CreateNode")),
        Fault("slow", _add("slow-operation", method="*", seconds=HOUR)),
        Fault("operation stuck", _add("stuck-operation", method="*")),
        Fault("operation fails", _add("failed-operation", method="*", code="INTERNAL", count=1)),
        Fault("preempted", _preempt),
        Fault("preempted after", _preempt, "after"),
        Fault("deleted by another", _delete),
        Fault("deleted by another after", _delete, "after"),
        Fault("hosts silent", _silent_hosts, lasts=True, methods=("ssh",)),
        Fault("another up", _run_up),
        Fault("another up after", _run_up, "after"),
        Fault("another down", _run(*DOWN)),
        Fault("another down after", _run(*DOWN), "after"),
    )
}  # fmt: skip
"""By name."""
