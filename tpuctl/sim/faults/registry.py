"""All faults that were asked for: adding, removing, and every server's question whether one works now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.errors import NotFoundError, nearest
from tpuctl.faults import KINDS, Request, Scenario, request
from tpuctl.sim.events import Events
from tpuctl.sim.faults.fault import LIMITED, Fault
from tpuctl.sim.state.private_file import write_private


class Faults:
    """The faults in the order they were asked for; any thread may add and remove.

    With a `path` they outlive a restart. `events` is where it is noted that one worked. Times are of `clock`.
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

    def add(self, kind: str | Request, *, origin: str = "code", place: int = 0, **options: Any) -> Fault:
        """Put one more fault in force: `add("stockout", zone="us-central1-f")`; raises UsageError."""
        asked = kind if isinstance(kind, Request) else request(kind, options)
        with self._lock:
            self._last += 1
            fault = Fault(f"f{self._last}", asked.kind, asked.options, self.clock(), origin, place)
            self._set(fault)
            self._save()
        self._tell()
        return fault

    def load(self, scenario: Scenario) -> list[Fault]:
        """Put a scenario's faults in force, in place of those of an earlier scenario."""
        with self._lock:
            for old in [one for one in self._faults.values() if one.origin.startswith("scenario ")]:
                self._drop(old)
            origin = f"scenario {scenario.name}"
            return [self.add(one, origin=origin, place=place) for place, one in enumerate(scenario.faults, 1)]

    def remove(self, identifier: str) -> Fault:
        """Drop one fault, which is over then; raises NotFoundError."""
        with self._lock:
            fault = self._faults.get(identifier)
            if fault is None:
                known = list(self._faults)
                hint = f"There are {', '.join(known)}." if known else "There are none."
                close = nearest(identifier, known)
                raise NotFoundError(
                    f"There is no fault '{identifier}'.", hint=f"Did you mean {close[0]}?" if close else hint
                )
            self._drop(fault)
            self._save()
        self._tell()
        return fault

    def clear(self) -> None:
        """Drop every fault."""
        with self._lock:
            self._faults.clear()
            self._kinds = frozenset()
            self._save()
        self._tell()

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
        """Return the fault of this id if it is in force now."""
        fault = self._faults.get(identifier)
        return fault if fault and fault.in_force(self.clock()) else None

    def of(self, *kinds: str) -> list[Fault]:
        """Return the faults of these kinds that are in force now, oldest first."""
        if self._kinds.isdisjoint(kinds):
            return []
        now = self.clock()
        with self._lock:
            return [one for one in self._faults.values() if one.kind in kinds and one.in_force(now)]

    def take(self, *kinds: str, **facts: str) -> Fault | None:
        """Return the first fault of these kinds that works on what happens now, counted down, or None.

        `facts` describe it: method, resource, zone, ... as the options are called; `when` is before or after.
        """
        if self._kinds.isdisjoint(kinds):
            return None
        for fault in self.of(*kinds):
            if fault.left != 0 and fault.fits(facts) and self._decide(fault):
                self.note(fault, facts.get("resource", ""), facts.get("method", ""))
                return self._faults.get(fault.id, fault)
        return None

    def work(self, fault: Fault, resource: str, detail: str = "", service: str = "tpu", on: str = "") -> bool:
        """Whether this fault, which fits, works on `resource`; counted down and noted if so.

        A kind that stays goes on working on what is called `on`.
        """
        current = self.find(fault.id)
        if current is None or current.left == 0 or not self._decide(current, on):
            return False
        self.note(fault, resource, detail, service)
        return True

    def note(self, fault: Fault, resource: str, detail: str = "", service: str = "") -> None:
        """Write down that a fault works on something."""
        if self.events is not None:
            service = service or ("storage" if detail.startswith("storage.") else "tpu")
            self.events.note("fault", fault.kind, resource, f"{fault.id} {detail}".strip(), service)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called, in whatever thread, whenever faults were added or removed."""
        self._listeners.append(listener)

    def deafen(self, listener: Callable[[], None]) -> None:
        """Call a listener no more."""
        self._listeners.remove(listener)

    def next_moment(self) -> float | None:
        """Return when the next fault begins or ends."""
        now = self.clock()
        moments = [
            moment for one in self.all() for moment in (one.begins, one.ends) if moment and moment > now
        ]
        return min(moments, default=None)

    def _decide(self, fault: Fault, on: str = "") -> bool:
        """Count it, and say whether skip and probability let it work."""
        with self._lock:
            current = self._faults.get(fault.id)
            if current is None:
                return False
            works = current.decides(current.seen + 1)
            counted = msgspec.structs.replace(
                current,
                seen=current.seen + 1,
                taken=current.taken + works,
                on=(*current.on, on) if on and works else current.on,
            )
            if counted.left == 0 and not counted.table.stays:
                self._drop(counted)
            else:
                self._faults[counted.id] = counted
            if on or counted["count"] is not None or LIMITED & counted.given.keys():
                self._save()
            return works

    def _set(self, fault: Fault) -> None:
        self._faults[fault.id] = fault
        self._kinds = frozenset(one.kind for one in self._faults.values())

    def _drop(self, fault: Fault) -> None:
        self._faults.pop(fault.id, None)
        self._kinds = frozenset(one.kind for one in self._faults.values())

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()

    def _save(self) -> None:
        if self._path:
            record = _Kept(self._last, list(self._faults.values()))
            write_private(self._path, msgspec.json.encode(record))


class _Kept(msgspec.Struct, frozen=True):
    """faults.json: the last number given, and the faults."""

    last: int
    faults: list[Fault]


def _load(path: Path | None) -> tuple[int, list[Fault]]:
    if path is None or not path.exists():
        return 0, []
    kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    return kept.last, [fault for fault in kept.faults if fault.kind in KINDS]  # others are of another version
