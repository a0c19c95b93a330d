"""One fault that was asked for, and what has become of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tpuctl.faults import KINDS, LIMITS, Kind
from tpuctl.faults.methods import full

NAMED = frozenset({"resource", "node"})
"""Facts that are full names, which a pattern may fit as a whole or by the last part."""


class Fault(msgspec.Struct, frozen=True):
    """A fault and its counters; replaced on change."""

    id: str
    kind: str
    given: dict[str, Any]
    """The options that were given."""
    added: float
    origin: str = "code"
    """`command`, `code`, or `scenario NAME`"""
    place: int = 0
    """Which of its scenario's faults it is, from 1 on."""
    seen: int = 0
    """How often something fitted."""
    taken: int = 0
    """How often it worked."""
    on: tuple[str, ...] = ()
    """Of a kind that stays: what it works on for as long as it is in force."""

    @property
    def table(self) -> Kind:
        """What the table says of its kind."""
        return KINDS[self.kind]

    def __getitem__(self, name: str) -> Any:
        """Return an option's value, its default when it was not given."""
        if name in self.given:
            return self.given[name]
        field = self.table.field(name)
        if field is None:
            raise KeyError(name)
        return self.table.count if name == "count" else field.default

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an option, or `default` where its kind has none of that name."""
        return self[name] if self.table.field(name) else default

    @property
    def begins(self) -> float:
        """The moment from which it is in force."""
        return self.added + float(self["after"])

    @property
    def ends(self) -> float | None:
        """The moment from which it is over."""
        return None if self["duration"] is None else self.begins + float(self["duration"])

    @property
    def left(self) -> int | None:
        """How often it will still work; None: without end."""
        return None if self["count"] is None else max(0, int(self["count"]) - self.taken)

    def in_force(self, now: float) -> bool:
        """Whether its time has come and is not over."""
        return now >= self.begins and not self.over(now)

    def over(self, now: float) -> bool:
        """Whether its time is over."""
        return self.ends is not None and now >= self.ends

    def fits(self, facts: Mapping[str, str], *, whatever: str = "") -> bool:
        """Whether what happens is what it is about, `whatever` that option says.

        What is not known fits no pattern but `*`.
        """
        if self.get("when", "before") != facts.get("when", "before"):
            return False
        patterns = (field.name for field in self.table.fields if field.matches and field.name != whatever)
        return all(_fits(name, str(self[name]), facts) for name in patterns)

    def decides(self, seen: int) -> bool:
        """Whether it works on the `seen`-th that fits, by `skip` and `probability`: the same each time."""
        if seen <= int(self["skip"]):
            return False
        likely = float(self["probability"])
        return (
            likely >= 1 or random.Random(f"{self['seed']} {self.kind} {self.place} {seen}").random() < likely
        )

    def shown(self, now: float) -> dict[str, Any]:
        """Return it as `tpuctl sim fault ls --json` shows it."""
        state = "waiting" if now < self.begins else "over" if self.over(now) else "in force"
        return {
            "id": self.id,
            "kind": self.kind,
            "options": {name: value for name, value in self.given.items() if value != {}},
            "state": "spent" if state == "in force" and self.left == 0 else state,
            "taken": self.taken,
            "left": self.left,
            "origin": self.origin,
        }


def _fits(name: str, pattern: str, facts: Mapping[str, str]) -> bool:
    if pattern == "*":
        return True
    if name not in facts:
        return False
    if name == "method":
        return fnmatchcase(facts[name], full(pattern))
    if name in NAMED:
        return fnmatchcase(facts[name], pattern) or fnmatchcase(facts[name].rpartition("/")[2], pattern)
    return fnmatchcase(facts[name], pattern)


LIMITED = frozenset(one.name for one in LIMITS if one.name in ("count", "skip", "probability"))
"""Options that make a fault's counters matter after a restart."""
