"""Says what there is of one name in several zones, and which of several candidates stays.

The oldest of a search's candidates stays. A candidate that is made later finds the older one when it looks
after its create, so that of two commands that create at the same time exactly one keeps its own. Candidates
are looked for in every zone: two commands may have some zones in common, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpuctl.cloud.provider import Provider
from tpuctl.errors import StateError, joined_hints
from tpuctl.flows.nodes.inventory import Allocation, take_inventory


@dataclass(frozen=True)
class Siblings:
    """The TPUs of one name in the zones of a search, and candidates of the same race in any zone."""

    live: tuple[Allocation, ...]
    """The oldest first."""
    ended: tuple[Allocation, ...]
    """Preempted, suspended or failed, or being deleted."""
    unreachable: tuple[str, ...] = ()
    """Zones of the search that did not answer, and may hold another."""

    @property
    def secured(self) -> Allocation | None:
        """The oldest that has its nodes."""
        return next((item for item in self.live if item.has_capacity), None)

    def only(self, is_meant: Callable[[Allocation], bool]) -> Siblings:
        """Return them without those that are not meant."""
        live, ended = filter(is_meant, self.live), filter(is_meant, self.ended)
        return Siblings(tuple(live), tuple(ended), self.unreachable)


def siblings(provider: Provider, name: str, zones: Sequence[str], race: str = "") -> Siblings:
    """Return what has a name in these zones, or belongs to a race; sends two requests for all zones."""
    inventory = take_inventory(provider, zones[0] if len(zones) == 1 and not race else None)
    named = (item for item in inventory.allocations if name in item.names)
    matches = [item for item in named if item.zone in zones or (race and item.race == race)]
    matches.sort(key=lambda item: item.age_order)
    return Siblings(
        tuple(item for item in matches if not item.is_over),
        tuple(item for item in matches if item.is_over),
        tuple(zone for zone in inventory.unreachable if zone in zones),
    )


def require_candidates(name: str, live: Sequence[Allocation]) -> None:
    """Raise StateError for several TPUs of a name that are not the candidates of one search."""
    if len(live) > 1 and (not live[0].race or len({item.race for item in live}) > 1):
        zones = sorted(item.zone for item in live)
        raise StateError(
            f"There are {len(live)} TPUs called '{name}': in {' and in '.join(zones)}.",
            hint="Choose one with --zone ZONE."
            if any(item.is_kept_by_terraform for item in live)
            else f"Choose one with --zone ZONE, or delete one: tpuctl down {name} --zone ZONE",
            zones=zones,
        )


def require_in_zones(item: Allocation, zones: Sequence[str]) -> Allocation:
    """Return a TPU that stays; raises StateError for that of another search, in none of one's own zones."""
    if item.zone not in zones:
        raise StateError(
            f"'{item.name}' is in {item.zone} already, by another 'tpuctl up' in several zones.",
            hint=joined_hints(
                f"The same command with --zone {item.zone} uses it, another --name makes another TPU.",
                f"Delete it: tpuctl down {item.name}",
            ),
            zone=item.zone,
        )
    return item


def older_rival(near: Siblings, own: Allocation) -> Allocation | None:
    """Return the TPU that stays in the place of one's own: the oldest of all that live."""
    first = near.live[0] if near.live else own
    return first if first.age_order < own.age_order else None
