"""The rules of data disks: persistent disks of Compute Engine, in the zone of the TPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpuctl.errors import UsageError
from tpuctl.nodes import DataDisk

DISK_URL = re.compile(r"https://(www|compute)\.googleapis\.com/compute/[a-z0-9]+/")
DISK_NAME = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
SOURCE = re.compile(
    rf"projects/[a-z0-9.:-]+/zones/(?P<zone>[a-z0-9-]+)/disks/{DISK_NAME}|(?P<name>{DISK_NAME})"
)


def disk_name(source: str, project: str, zone: str) -> str:
    """Return `projects/P/zones/Z/disks/D` for D, for the full name, or for its URL."""
    source = DISK_URL.sub("", source)
    return source if "/" in source else f"projects/{project}/zones/{zone}/disks/{source}"


def check_disks(disks: Sequence[DataDisk], zone: str, *, hosts: int, slices: int) -> None:
    """Raise UsageError for disks that the hosts of a TPU in `zone` cannot have."""
    sources = [disk_name(disk.source, "", zone) for disk in disks]
    for disk, source in zip(disks, sources, strict=True):
        _check_place(disk, zone)
        if sources.count(source) > 1:
            raise UsageError(f"Disk '{disk.source}' is named twice.", disk=disk.source)
        if hosts * slices > 1 and not disk.read_only:
            raise UsageError(
                f"{hosts * slices} hosts can share disk '{disk.source}' only if nobody writes to it.",
                hint=f"Attach it read-only: --data-disk {disk.source}:ro",
                disk=disk.source,
            )


def _check_place(disk: DataDisk, zone: str) -> None:
    match = SOURCE.fullmatch(DISK_URL.sub("", disk.source))
    if match is None:
        raise UsageError(
            f"'{disk.source}' cannot name a disk.",
            hint="It is NAME or projects/PROJECT/zones/ZONE/disks/NAME; for read-only with :ro behind it.",
            disk=disk.source,
        )
    if match["zone"] not in (None, zone):
        raise UsageError(
            f"Disk '{disk.source}' is in {match['zone']}, not in {zone}.",
            hint=f"Pass --zone {match['zone']}: a disk is attached in its own zone only.",
            zone=zone,
        )
