"""Defines what a cost is made of: spans of time on one node, and their sums by run, node, user or label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tpuctl import clock
from tpuctl.catalogue.prices import Price
from tpuctl.catalogue.totals import Total

By = Literal["run", "node", "user", "label"]


@dataclass(frozen=True)
class Entry:
    """A span in which one node billed: for an attempt of a run, or for no run."""

    run: str
    """Empty for time in which no run used the node."""
    attempt: int
    """0 for no run."""
    node: str
    zone: str
    uid: str
    """Empty where the node is not recorded."""
    user: str
    """The account whose node it was, or, where that is not known, who submitted the run."""
    began: str
    """ISO-8601, UTC; empty where nobody knows."""
    ended: str
    """ISO-8601, UTC."""
    seconds: float | None
    """None where nobody knows."""
    price: Price
    """Per hour."""
    is_present: bool
    """Whether that is the present price, because none was recorded at the time."""
    cost: Price
    labels: Mapping[str, str] = field(default_factory=dict)
    goes_on: bool = False
    """Whether it has not ended yet."""
    is_preempted: bool = False
    """Whether Google took the node back at its end."""

    def within(self, start: str, end: str) -> Entry | None:
        """Return what of it is between two moments; None for nothing."""
        if self.seconds is None or not self.began:
            return self
        began, ended = max(self.began, start), min(self.ended, end)
        if (began, ended) == (self.began, self.ended):
            return self
        return self.part(began, ended) if began < ended else None

    def part(self, began: str, ended: str) -> Entry:
        """Return what of it is from `began` to `ended`."""
        seconds = (clock.parse(ended) - clock.parse(began)).total_seconds()
        cost, goes_on = self.price.for_seconds(seconds), self.goes_on and ended == self.ended
        return replace(self, began=began, ended=ended, seconds=seconds, cost=cost, goes_on=goes_on)


@dataclass(frozen=True)
class Group:
    """The entries of one run, node, user or label."""

    key: str
    entries: Sequence[Entry]

    @property
    def total(self) -> Total:
        """What they have cost together."""
        return Total.of(entry.cost for entry in self.entries)

    @property
    def seconds(self) -> float:
        """The time of nodes, as far as it is known."""
        return sum(entry.seconds or 0.0 for entry in self.entries)

    @property
    def attempts(self) -> int:
        """The number of attempts of runs."""
        return len({(entry.run, entry.attempt) for entry in self.entries if entry.run})


def grouped(entries: Iterable[Entry], by: By) -> list[Group]:
    """Return the entries by their keys, in order of the first time of each.

    With labels, one with several is in the group of each.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.began or entry.ended, entry.run, entry.attempt)):
        for key in KEYS[by](entry):
            groups.setdefault(key, []).append(entry)
    return [Group(key, members) for key, members in groups.items()]


def _node(entry: Entry) -> str:
    return f"{entry.node} in {entry.zone}" if entry.node else "no record of the node"


def _labels(entry: Entry) -> list[str]:
    return [f"{key}={value}" for key, value in sorted(entry.labels.items())] or ["no label"]


KEYS: dict[By, Callable[[Entry], list[str]]] = {
    "run": lambda entry: [entry.run or f"no run, {_node(entry)}"],
    "node": lambda entry: [_node(entry)],
    "user": lambda entry: [entry.user or "unknown"],
    "label": _labels,
}
"""What to sum by -> the keys of an entry."""
