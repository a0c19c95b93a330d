"""Records of what a project pays for beside its TPUs: disks, static addresses, and what is in its buckets."""

from __future__ import annotations

from dataclasses import dataclass


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
