"""Faults that were asked for: a table of rules that every server of the simulator consults."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Rule:
    """One fault: calls of `method` on `resource` (both shell patterns) fail as stated, `count` times.

    Methods are `tpu.CreateNode`, `storage.objects.get` and the like, or `location` for a zone that does not
    answer; a resource is a full name or `BUCKET/OBJECT`. `status` is a gRPC code number; `count` None means
    until removed. With `late`, the fault is the end of the long-running operation, not the answer.
    """

    method: str
    status: int
    message: str
    resource: str = "*"
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    count: int | None = None
    late: bool = False


class Faults:
    """The rules in force, oldest first."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Put one more rule in force."""
        self.rules.append(rule)

    def clear(self) -> None:
        """Drop every rule."""
        self.rules.clear()

    def take(self, method: str, resource: str, *, late: bool = False) -> Rule | None:
        """Return the first rule that fits this call, counting it down, or None."""
        for rule in self.rules:
            if rule.late == late and _fits(rule, method, resource):
                if rule.count is not None:
                    rule.count -= 1
                    if rule.count <= 0:
                        self.rules.remove(rule)
                return rule
        return None


def _fits(rule: Rule, method: str, resource: str) -> bool:
    return fnmatch.fnmatchcase(method, rule.method) and fnmatch.fnmatchcase(resource, rule.resource)
