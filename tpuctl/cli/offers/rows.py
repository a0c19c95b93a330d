"""Shows what the commands of this folder share: zones that have not answered, prices and quotas."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.catalogue.prices import Price
from tpuctl.catalogue.quotas import Quota
from tpuctl.cli import output
from tpuctl.flows.offers.survey import Survey

UNKNOWN = "-"


def note_silent(survey: Survey) -> None:
    """Name the zones that have not answered, one a line."""
    for zone, reason in survey.silent.items():
        output.note(f"Warning: {zone} has not answered, so the catalogue is shown: {reason}")


def price_fields(price: Price) -> Mapping[str, object]:
    """Return a price as JSON: exact digits, as text."""
    return {
        "amount": None if price.amount is None else f"{price.amount.normalize():f}",
        "currency": price.currency,
        "source": price.source,
        "as_of": price.as_of,
        "reason": price.reason,
    }


def quota_fields(quota: Quota) -> Mapping[str, object]:
    """Return a quota as JSON."""
    return {"limit": quota.value, "unit": quota.unit, "reason": quota.reason}
