"""Defines how `up` looks for capacity: in which zones, in one after the other or in all at once, how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from tpuctl import accelerators, durations
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.regions import BucketLocation, nearest_first
from tpuctl.errors import UsageError, nearest

ANY = "any"


@dataclass(frozen=True)
class Search:
    """Where and how long to look for capacity."""

    zones: tuple[str, ...]
    """In the order in which they are tried."""
    named: tuple[str, ...] = ()
    """What the user named: zones, regions or `any`; nothing where the configuration has the zone."""
    race: bool = False
    """Whether to wait in the queues of all zones at once, and to keep the first that gets its nodes."""
    wait: float = 0.0
    """Seconds for which to look again while there is no capacity; of a queue, 0 is for no limit."""
    detach: bool = False
    """Whether to leave as soon as the request is accepted."""
    left_out: tuple[str, ...] = ()
    """Zones of a region or of `any` that are not tried, since the bucket is in another region."""
    flaws: Mapping[str, str] = field(default_factory=dict)
    """Zone of a region or of `any` that is tried last -> what it lacks: `no quota` or `no price`."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `up` that make this search."""
        zones = (word for name in self.named for word in ("--zone", name))
        wait = ("--wait-capacity", durations.text(self.wait)) if self.wait else ()
        return (*zones, *(("--race",) if self.race else ()), *wait)


def check_search(search: Search, *, is_queued: bool) -> None:
    """Raise UsageError for options that contradict each other."""
    if search.race and len(search.zones) < 2:
        elsewhere = f" {len(search.left_out)} are in other regions than the bucket: --cross-region"
        raise UsageError(
            "--race takes several zones.",
            hint=f"Name them with --zone, or pass --zone any.{elsewhere if search.left_out else ''}",
        )
    if search.detach and len(search.zones) > 1:
        raise UsageError(
            "--detach leaves at once, and with several zones somebody has to wait, and cancel the rest.",
            hint="Name one zone, or leave --detach out.",
        )
    if search.detach and search.wait and not is_queued:
        raise UsageError("--detach leaves at once, and --wait-capacity waits.", hint="Pass --queued instead.")


@dataclass(frozen=True)
class Terms:
    """What is known of a type in a zone before anything is created."""

    flaw: str = ""
    """`no quota` or `no price`: nobody has it there; empty for neither."""
    spot_price: Decimal = Decimal(0)
    """Per hour; 0 where it is unknown, or does not matter."""


def expand(
    named: Sequence[str],
    accelerator: Accelerator,
    near: BucketLocation | None = None,
    terms: Callable[[Sequence[str]], Mapping[str, Terms]] = lambda zones: {},
) -> tuple[str, ...]:
    """Return the zones that names mean: of zones, of regions, or `any` for all that the catalogue has.

    The names' order is kept. Of the zones of a region or of `any`, those come first that lack nothing, of
    these the ones near the bucket, then those that Google documents, then the cheapest spot TPUs. Raises
    UsageError for a region without the type.
    """
    zones: list[str] = []
    for name in named:
        zones += [name] if is_zone(name) else _zones_of(name, accelerator, near, terms)
    return tuple(dict.fromkeys(zones))


def is_zone(name: str) -> bool:
    """Whether a name is that of a zone, not of a region or `any`."""
    return name != ANY and "-" in name and not name[-1].isdigit()


def _zones_of(
    name: str,
    accelerator: Accelerator,
    near: BucketLocation | None,
    terms: Callable[[Sequence[str]], Mapping[str, Terms]],
) -> list[str]:
    offered = [zone for zone in accelerator.zones if name in (ANY, accelerators.region(zone))]
    if not offered:
        regions = sorted({accelerators.region(zone) for zone in accelerator.zones})
        close = nearest(name, [*regions, ANY], most=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"No zone of '{name}' is known to offer {accelerator.type}.",
            hint=f"{hint}{accelerator.places}",
            zone=name,
        )
    known = terms(offered)
    offered.sort(key=lambda zone: known.get(zone, Terms()).spot_price)
    offered.sort(key=lambda zone: zone not in accelerator.documented)
    offered = nearest_first(offered, near)
    return sorted(offered, key=lambda zone: bool(known.get(zone, Terms()).flaw))
