"""A plan as the laws see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.terraform.plans.plan import FAILING, LATER, without_keys
from tests.terraform.plans.stanzas import Lines, Stanzas, nested


@dataclass(frozen=True)
class Resource:
    """A resource or data source with its arguments."""

    address: str
    kind: str
    """Its type; that of a data source begins with `data.`"""
    values: dict[str, Any]

    @property
    def role(self) -> Any:
        return self.values.get("role")

    @property
    def members(self) -> list[Any]:
        """Who gets the role, in whichever form the type has it."""
        every = self.values.get("members", [self.values.get("member")])
        return every if isinstance(every, list) else [every]


@dataclass(frozen=True)
class Planned:
    """All resources of a plan, its outputs, and the ranges that its settings configure for SSH."""

    stanzas: Stanzas
    ssh_ranges: tuple[str, ...] = ()

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        named = {
            name: lines for name, lines in self.stanzas.items() if not name.startswith(("output ", FAILING))
        }
        return tuple(Resource(name, _kind(name), nested(lines)) for name, lines in named.items())

    @cached_property
    def output_lines(self) -> Lines:
        return {
            path: value
            for name, lines in self.stanzas.items()
            if name.startswith("output ")
            for path, value in lines.items()
        }

    def of(self, *kinds: str) -> Iterator[Resource]:
        """Yield the resources of some types."""
        return (resource for resource in self.resources if resource.kind in kinds)


def is_later(value: Any) -> bool:
    """Return whether a value is known only after apply."""
    return isinstance(value, dict) and LATER in value


def _kind(address: str) -> str:
    *_, kind, _name = without_keys(address).split(".")
    return f"data.{kind}" if ".data." in f".{without_keys(address)}" else kind
