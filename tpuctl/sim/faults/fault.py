"""Defines one injected fault: its options, its counters, and whether it matches an event and fires."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tpuctl.faults import KINDS, Kind, Value
from tpuctl.faults.methods import full

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
