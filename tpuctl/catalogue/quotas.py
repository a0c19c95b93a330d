"""Defines how many cores or chips a project may use at a time in a zone.

- Records of what a project pays for beside its TPUs: disks, static addresses, and what is in its buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.accelerators import Accelerator, region

UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Quota:
    """A limit, or the reason why nobody knows it."""

    limit: int | None
    """Cores; chips of generations that count them. UNLIMITED for no limit, None for unknown."""
    unit: str = ""
    """`cores` or `chips`."""
    reason: str = ""

    @property
    def value(self) -> int | str | None:
        """The limit as JSON shows it: a number, `unlimited`, or null for unknown."""
        return "unlimited" if self.limit == UNLIMITED else self.limit

    def __str__(self) -> str:
        """Return it for a column of a table: `8 cores`, `unlimited` or `unknown`."""
        if self.limit is None or self.limit == UNLIMITED:
            return "unknown" if self.limit is None else "unlimited"
        return f"{self.limit} {self.unit}"


@dataclass(frozen=True)
class QuotaLimit:
    """One row of the project's quotas."""

    generation: str
    spot: bool
    slices: bool | None
    """True for slices of several hosts, False for one host, None for either."""
    places: tuple[str, ...]
    """Zones or regions where it holds."""
    limit: int

    def applies_to(self, accelerator: Accelerator, zone: str, *, spot: bool) -> bool:
        """Whether it limits a type in a zone."""
        return (
            self.generation == accelerator.generation
            and self.spot == spot
            and self.slices in (None, accelerator.hosts > 1)
            and (zone in self.places or region(zone) in self.places)
        )


@dataclass(frozen=True)
class QuotaList:
    """The quotas of a project as they were read; `reason` says why there are none."""

    limits: tuple[QuotaLimit, ...]
    source: str = ""
    reason: str = ""

    def quota(self, accelerator: Accelerator, zone: str, *, spot: bool) -> Quota:
        """Return the quota of a type in a zone: the least of those of the zone and of its region."""
        rows = self.limits if accelerator.is_known else ()
        limits = [row.limit for row in rows if row.applies_to(accelerator, zone, spot=spot)]
        unit = "chips" if accelerator.cores_per_chip == 1 else "cores"
        if not limits:
            reason = self.reason or f"the {self.source} names no quota of {accelerator.type} in {zone}"
            return Quota(None, unit, reason)
        return Quota(min(limits), unit)


@dataclass(frozen=True)
class Disk:
    """A persistent disk."""

    name: str
    place: str
    """Its zone, or region."""
    size_gb: str
    """As the service writes it."""
    kind: str
    """Its type: `pd-standard`."""
    users: tuple[str, ...] = ()
    """The instances that have it."""


@dataclass(frozen=True)
class Address:
    """A static external address."""

    name: str
    place: str
    """Its region, or `global`."""
    address: str
    status: str
    """`RESERVED` for one that nothing uses, which bills more."""


@dataclass(frozen=True)
class Usage:
    """What is in a bucket, with versions that are not the current ones."""

    objects: int
    size: int
    """Bytes."""
    is_complete: bool
    """Whether every object was counted."""
