"""The rules of the names of nodes, reservations and network tags."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpuctl.cloud.tpu.names import RESERVATION, RESERVATION_FORM
from tpuctl.errors import UsageError

NODE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""Of nodes, queued resources and tags (RFC 1035)."""
LONGEST = 63
MOST_TAGS = 64


def check_node_name(name: str, slices: int) -> None:
    """Raise UsageError for a name that a node, or the last one of several slices, cannot have."""
    last = f"{name}-{slices - 1}" if slices > 1 else name
    if not NODE_NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a node.",
            hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
        )
    if len(last) > LONGEST:
        raise UsageError(
            f"'{name}' is too long: its slices are called '{name}-0' to '{last}'.",
            hint=f"Names have {LONGEST} characters at most.",
        )


def check_reservation(reservation: str, zone: str) -> None:
    """Raise UsageError for a name that no reservation in the zone has; '' stands for none."""
    match = RESERVATION.fullmatch(reservation)
    if reservation and match is None:
        raise UsageError(
            f"'{reservation}' cannot name a reservation.",
            hint=f"It is NAME, or {RESERVATION_FORM}.",
        )
    if match and match["zone"] not in (None, zone):
        raise UsageError(
            f"The reservation is in {match['zone']}, not in {zone}.",
            hint=f"Pass --zone {match['zone']}.",
            zone=zone,
        )


def check_tags(tags: Sequence[str]) -> None:
    """Raise UsageError for what cannot be a network tag, and for too many."""
    for tag in tags:
        if not NODE_NAME.fullmatch(tag):
            raise UsageError(
                f"'{tag}' cannot be a network tag.",
                hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
            )
    if len(set(tags)) > MOST_TAGS:
        raise UsageError(
            f"{len(set(tags))} network tags are too many.", hint=f"A VM has {MOST_TAGS} at most."
        )
