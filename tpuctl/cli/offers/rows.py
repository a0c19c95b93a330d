"""Shows what the commands of this folder share: silent zones, what is offered where, quotas."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.catalogue.quotas import Quota
from tpuctl.cli import output
from tpuctl.flows.offers.survey import Survey

UNKNOWN = "-"
MOST_ZONES = 4
"""Zones that a line of a table names."""


def note_silent(survey: Survey) -> None:
    """Name the zones that have not answered, one a line."""
    for zone, reason in survey.silent.items():
        output.note(f"Warning: {zone} has not answered, so the catalogue is shown: {reason}")


def offer_fields(survey: Survey, name: str) -> Mapping[str, list[str]]:
    """Return which sources name a type or a runtime, and the zones that have it, as JSON."""
    offers = survey.of(name)
    return {
        "sources": sorted({source for zone in offers for source in zone.sources(name).split(", ")}),
        "zones": [zone.zone for zone in offers if name in zone.names],
    }


def offer_cells(offer: Mapping[str, list[str]]) -> tuple[str, str]:
    """Return the same as two cells of a table: sources, and the first zones with the number of others."""
    zones = offer["zones"]
    more = f" and {len(zones) - MOST_ZONES} more" if len(zones) > MOST_ZONES else ""
    return ", ".join(offer["sources"]), ", ".join(zones[:MOST_ZONES]) + more or UNKNOWN


def quota_fields(quota: Quota) -> Mapping[str, object]:
    """Return a quota as JSON."""
    return {"limit": quota.value, "unit": quota.unit, "reason": quota.reason}
