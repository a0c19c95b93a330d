"""The faults in force. `FaultRegistry.fire` matches them to a request, an operation or a transfer.

A preemption, a maintenance or a broken host has no request: `sim/fault_executor.py` looks for these and asks
`fire_on`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tpuctl.errors import NotFoundError, nearest
from tpuctl.faults import KINDS, Request, Scenario, request
from tpuctl.sim.events import Events
from tpuctl.sim.faults.fault import LIMITED, Fault
from tpuctl.sim.state.private_file import write_private


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
