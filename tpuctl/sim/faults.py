"""Keeps the injected faults; every server of the simulator asks the registry whether one fires.

- Defines one injected fault: its options, its counters, and whether it matches an event and fires.
- Waits while a fault holds something up: until the fault is over or removed.
- Makes a fault for tests: a method fails with a gRPC status, given by number.
- Resets a connection, as a fault on the way does.
- Limits the bandwidth that all transfers of one fault share.
- The faults in force. `FaultRegistry.fire` matches them to a request, an operation or a transfer.

  A preemption, a maintenance or a broken host has no request: `sim/fault_executor.py` looks for these and
  asks `fire_on`.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.errors import NotFoundError, nearest
from tpuctl.faults import KINDS, Kind, Request, Scenario, Value, request
from tpuctl.faults.kinds import CODES
from tpuctl.faults.methods import full
from tpuctl.sim.events import Events
from tpuctl.sim.state import write_private

NAMED = frozenset({"resource", "node"})
"""Facts that are full resource names; a pattern may match the full name or its last part."""


LIMITED = frozenset({"count", "skip", "probability"})
"""Options by which a fault's counters matter after a restart."""


class Fault(msgspec.Struct, frozen=True):
    """A fault and its counters; replaced on change."""

    id: str
    kind: str
    options: dict[str, Value]
    """Those that the request named; the others have their defaults."""
    added: float
    origin: str = "code"
    """`command`, `code`, or `scenario NAME`"""
    place: int = 0
    """Its position in its scenario, from 1 on."""
    matched: int = 0
    """How often something matched."""
    fired: int = 0
    """How often it fired."""
    targets: tuple[str, ...] = ()
    """Of a kind that stays: the hosts (NODE_UID/WORKER) it holds for as long as it is in force."""

    @property
    def definition(self) -> Kind:
        """The row of its kind in the table."""
        return KINDS[self.kind]

    def __getitem__(self, name: str) -> Any:
        """Return an option's value or default, of the type that its field says; raises KeyError."""
        if name in self.options:
            return self.options[name]
        field = self.definition.field(name)
        if field is None:
            raise KeyError(name)
        return self.definition.count if name == "count" else field.default

    def get(self, name: str, default: Value = None) -> Any:
        """Return the value of an option, or `default` where its kind has none of that name."""
        return self[name] if self.definition.field(name) else default

    @property
    def begins(self) -> float:
        """The moment from which it is in force."""
        return self.added + float(self["after"])

    @property
    def ends(self) -> float | None:
        """The moment from which it is over."""
        return None if self["duration"] is None else self.begins + float(self["duration"])

    @property
    def remaining(self) -> int | None:
        """How often it will still fire; None: without end."""
        return None if self["count"] is None else max(0, int(self["count"]) - self.fired)

    def in_force(self, now: float) -> bool:
        """Whether it has begun and is not over."""
        return now >= self.begins and not self.over(now)

    def over(self, now: float) -> bool:
        """Whether its time is over."""
        return self.ends is not None and now >= self.ends

    def matches(self, facts: Mapping[str, str], *, ignoring: str = "") -> bool:
        """Whether every pattern among its options, but `ignoring`, matches the fact of the same name.

        `facts` describe a request, an operation, a node or a host: method, resource, zone, ... A fact that is
        absent matches no pattern but `*`.
        """
        if self.get("when", "before") != facts.get("when", "before"):
            return False
        patterns = [
            field.name for field in self.definition.fields if field.is_pattern and field.name != ignoring
        ]
        return all(_matches(name, str(self[name]), facts) for name in patterns)

    def fires_on(self, match: int) -> bool:
        """Whether it fires on its n-th match (from 1), by `skip` and `probability`: always the same."""
        if match <= int(self["skip"]):
            return False
        probability = float(self["probability"])
        draw = random.Random(f"{self['seed']} {self.kind} {self.place} {match}")  # noqa: S311  repeatable by its seed: a rehearsal, no secret
        return probability >= 1 or draw.random() < probability

    def as_json(self, now: float) -> dict[str, object]:
        """Return the object that `tpuctl sim fault ls --json` prints for it at the time `now`."""
        state = "waiting" if now < self.begins else "over" if self.over(now) else "in force"
        return {
            "id": self.id,
            "kind": self.kind,
            "options": {name: value for name, value in self.options.items() if value != {}},
            "state": "spent" if state == "in force" and self.remaining == 0 else state,
            "taken": self.fired,
            "left": self.remaining,
            "origin": self.origin,
        }


def _matches(name: str, pattern: str, facts: Mapping[str, str]) -> bool:
    if pattern == "*":
        return True
    if name not in facts:
        return False
    if name == "method":
        return fnmatchcase(facts[name], full(pattern))
    if name in NAMED:
        return fnmatchcase(facts[name], pattern) or fnmatchcase(facts[name].rpartition("/")[2], pattern)
    return fnmatchcase(facts[name], pattern)


POLL_INTERVAL = 0.5
"""Seconds between looks at the clock, which a test can advance."""


async def while_in_force(faults: FaultRegistry, identifier: str, seconds: float | None = None) -> None:
    """Wait until the fault is over or removed, or `seconds` have passed (None: without end)."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def on_change() -> None:
        loop.call_soon_threadsafe(changed.set)

    end = None if seconds is None else loop.time() + seconds
    faults.add_listener(on_change)
    try:
        while fault := faults.find(identifier):
            waits = [POLL_INTERVAL]
            waits += [end - loop.time()] if end is not None else []
            waits += [fault.ends - faults.clock()] if fault.ends is not None else []
            if min(waits) <= 0:
                return
            try:
                await asyncio.wait_for(changed.wait(), min(waits))
            except TimeoutError:
                continue
            changed.clear()
    finally:
        faults.remove_listener(on_change)


def grpc_fault(
    method: str,
    status: int,
    message: str,
    resource: str = "*",
    reason: str = "",
    metadata: Mapping[str, str] | None = None,
    count: int | None = None,
    late: bool = False,
) -> Request:
    """Return an `error`, or with `late` a `failed-operation`, as `FaultRegistry.add` takes it."""
    options: dict[str, Value] = {
        "method": method,
        "code": CODES[status - 1],
        "message": message,
        "resource": resource,
        "reason": reason,
        "metadata": dict(metadata or {}),
    }
    if count is not None:
        options["count"] = count
    return Request("failed-operation" if late else "error", options)


_NO_LINGER = struct.pack("ii", 1, 0)


def reset(transport: asyncio.BaseTransport | None) -> None:
    """Send a TCP reset to the other end of a connection, and close it."""
    if not isinstance(transport, asyncio.Transport):
        return
    raw = transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


LARGEST_PIECE = 64 << 10
"""Bytes at most that are sent at a time."""

PIECES_PER_SECOND = 20
"""At least, where the bandwidth is small."""


class BandwidthLimits:
    """For each fault and direction, the time at which all bytes so far will have been sent."""

    def __init__(self) -> None:
        self._free_at: defaultdict[tuple[str, bool], float] = defaultdict(float)

    def piece_size(self, fault: Fault) -> int:
        """Return how many bytes to send at a time: practically unlimited without a bandwidth."""
        bandwidth: int = fault.get("bandwidth", 0)
        return max(1, min(LARGEST_PIECE, bandwidth // PIECES_PER_SECOND)) if bandwidth else 1 << 30

    async def send(self, fault: Fault, size: int, *, up: bool) -> None:
        """Wait for as long as the bandwidth needs for `size` bytes more."""
        if not fault["bandwidth"]:
            return
        now = time.monotonic()
        free_at = max(now, self._free_at[fault.id, up]) + size / fault["bandwidth"]
        self._free_at[fault.id, up] = free_at
        await asyncio.sleep(free_at - now)


class FaultRegistry:
    """The faults, oldest first; any thread may add and remove.

    With a `path` they outlive a restart. Each firing is an event in `events`. Times are of `clock`.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        events: Events | None = None,
        path: Path | None = None,
    ) -> None:
        self.clock = clock
        self.events = events
        self._path = path
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self._last, faults = _load(path)
        self._faults = {fault.id: fault for fault in faults}
        self._kinds = frozenset(fault.kind for fault in faults)

    def add(self, kind: str | Request, *, origin: str = "code", place: int = 0, **options: object) -> Fault:
        """Put a fault in force, such as `add("stockout", zone="us-central1-f")`; raises UsageError."""
        checked = kind if isinstance(kind, Request) else request(kind, options)
        with self._lock:
            self._last += 1
            fault = Fault(f"f{self._last}", checked.kind, checked.options, self.clock(), origin, place)
            self._set(fault)
            self._save()
        self._notify()
        return fault

    def load(self, scenario: Scenario) -> list[Fault]:
        """Put a scenario's faults in force; those of an earlier scenario go."""
        with self._lock:
            for old in [fault for fault in self._faults.values() if fault.origin.startswith("scenario ")]:
                self._drop(old)
            origin = f"scenario {scenario.name}"
            requests = enumerate(scenario.faults, 1)
            return [self.add(request, origin=origin, place=place) for place, request in requests]

    def remove(self, identifier: str) -> Fault:
        """Remove a fault, which ends it; raises NotFoundError."""
        with self._lock:
            fault = self._faults.get(identifier)
            if fault is None:
                identifiers = list(self._faults)
                hint = f"There are {', '.join(identifiers)}." if identifiers else "There are none."
                close = nearest(identifier, identifiers)
                raise NotFoundError(
                    f"There is no fault '{identifier}'.", hint=f"Did you mean {close[0]}?" if close else hint
                )
            self._drop(fault)
            self._save()
        self._notify()
        return fault

    def clear(self) -> None:
        """Remove every fault."""
        with self._lock:
            self._faults.clear()
            self._kinds = frozenset()
            self._save()
        self._notify()

    def all(self) -> list[Fault]:
        """Return the faults that are not over, oldest first."""
        now = self.clock()
        with self._lock:
            over = [fault for fault in self._faults.values() if fault.over(now)]
            for fault in over:
                self._drop(fault)
            if over:
                self._save()
            return list(self._faults.values())

    def find(self, identifier: str) -> Fault | None:
        """Return the fault of this id if it is in force now, else None."""
        fault = self._faults.get(identifier)
        return fault if fault and fault.in_force(self.clock()) else None

    def in_force(self, *kinds: str) -> list[Fault]:
        """Return the faults of these kinds that are in force now, oldest first."""
        if self._kinds.isdisjoint(kinds):
            return []
        now = self.clock()
        with self._lock:
            return [fault for fault in self._faults.values() if fault.kind in kinds and fault.in_force(now)]

    def fire(self, *kinds: str, **facts: str) -> Fault | None:
        """Return the oldest fault of these kinds that matches `facts` and fires, counted; else None.

        `facts` describe what happens, by the names of the options: method, resource, zone, ...; `when` is
        `before` or `after`.
        """
        if self._kinds.isdisjoint(kinds):
            return None
        for fault in self.in_force(*kinds):
            if fault.remaining != 0 and fault.matches(facts) and self._count(fault):
                self.note(fault, facts.get("resource", ""), facts.get("method", ""))
                return self._faults.get(fault.id, fault)
        return None

    def fire_on(
        self, fault: Fault, resource: str, detail: str = "", service: str = "tpu", target: str = ""
    ) -> bool:
        """Whether this fault, which matches `resource`, fires on it; counts it and notes the event.

        A fault of a kind that stays holds `target` from then on.
        """
        current = self.find(fault.id)
        if current is None or current.remaining == 0 or not self._count(current, target):
            return False
        self.note(fault, resource, detail, service)
        return True

    def note(self, fault: Fault, resource: str, detail: str = "", service: str = "") -> None:
        """Note the event that a fault fires on `resource`."""
        if self.events is not None:
            service = service or ("storage" if detail.startswith("storage.") else "tpu")
            self.events.note("fault", fault.kind, resource, f"{fault.id} {detail}".strip(), service)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in any thread, whenever faults were added or removed."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.remove(listener)

    def next_moment(self) -> float | None:
        """Return when the next fault begins or ends, None if none will."""
        now = self.clock()
        moments = [moment for fault in self.all() for moment in (fault.begins, fault.ends)]
        return min((moment for moment in moments if moment and moment > now), default=None)

    def _count(self, fault: Fault, target: str = "") -> bool:
        """Count a match, and say whether skip and probability let it fire."""
        with self._lock:
            current = self._faults.get(fault.id)
            if current is None:
                return False
            fires = current.fires_on(current.matched + 1)
            counted = msgspec.structs.replace(
                current,
                matched=current.matched + 1,
                fired=current.fired + fires,
                targets=(*current.targets, target) if target and fires else current.targets,
            )
            if counted.remaining == 0 and not counted.definition.stays:
                self._drop(counted)
            else:
                self._faults[counted.id] = counted
            if target or counted["count"] is not None or LIMITED & counted.options.keys():
                self._save()
            return fires

    def _set(self, fault: Fault) -> None:
        self._faults[fault.id] = fault
        self._kinds = frozenset(fault.kind for fault in self._faults.values())

    def _drop(self, fault: Fault) -> None:
        self._faults.pop(fault.id, None)
        self._kinds = frozenset(fault.kind for fault in self._faults.values())

    def _notify(self) -> None:
        for listener in list(self._listeners):
            listener()

    def _save(self) -> None:
        if self._path:
            saved = _SavedFaults(self._last, list(self._faults.values()))
            write_private(self._path, msgspec.json.encode(saved))


class _SavedFaults(msgspec.Struct, frozen=True):
    """faults.json: the number of the last id, and the faults."""

    last: int
    faults: list[Fault]


def _load(path: Path | None) -> tuple[int, list[Fault]]:
    if path is None or not path.exists():
        return 0, []
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=_SavedFaults)
    except msgspec.ValidationError:  # another version of the simulator wrote it
        return 0, []
    return saved.last, [fault for fault in saved.faults if fault.kind in KINDS]


__all__ = ["Fault", "FaultRegistry", "grpc_fault"]
