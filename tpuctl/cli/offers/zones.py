"""The command zones."""

from __future__ import annotations

import click

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.prices import Price
from tpuctl.catalogue.quotas import Quota, QuotaList
from tpuctl.cli import output
from tpuctl.cli.offers.rows import note_silent, quota_fields
from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import OFFERED_ACCELERATOR
from tpuctl.flows.offers.survey import Survey, ZoneOffer, read_quotas, survey_types

ZONE_COLUMNS = ("ZONE", "TYPES", "LARGEST", "SOURCE")
OFFERED = {True: "yes", False: "no", None: "unknown"}


@click.command()
@click.argument("accelerator", type=OFFERED_ACCELERATOR, required=False)
@with_session
def zones(session: Session, accelerator: str | None) -> None:
    """List the zones with TPUs, or those with one accelerator type: its quota and its price there.

    Every zone is asked; the catalogue of this version stands in for those that do not answer. Offered is
    not the same as free: only 'tpuctl up' finds out whether there is capacity.

    \b
    Example:
      tpuctl zones v3-8
    """
    survey = survey_types(session.cloud.provider, session.from_flag("zone"))
    if accelerator is None:
        _show_zones(session, survey)
    else:
        kind = (accelerators.accelerator if survey.of(accelerator) else accelerators.known)(accelerator)
        _show_type(session, survey, kind)
    note_silent(survey)


def _show_zones(session: Session, survey: Survey) -> None:
    if session.as_json:
        listed = [{"zone": zone.zone, "types": zone.names, "source": zone.source} for zone in survey.zones]
        output.json({"zones": listed, "silent": survey.silent})
        return
    output.table(ZONE_COLUMNS, [_zone_row(zone) for zone in survey.zones if zone.names])


def _zone_row(zone: ZoneOffer) -> tuple[object, ...]:
    families = dict.fromkeys(name.rpartition("-")[0] for name in zone.names)
    largest = [
        max((name for name in zone.names if name.startswith(f"{family}-")), key=_size) for family in families
    ]
    return zone.zone, ", ".join(families), ", ".join(largest), zone.source


def _size(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _show_type(session: Session, survey: Survey, kind: Accelerator) -> None:
    quotas = read_quotas(session.cloud.read_quotas)
    rows = [_Row(session, zone, kind, quotas) for zone in survey.of(kind.type)]
    rows.sort(key=lambda row: row.order)
    if session.as_json:
        output.json({"type": kind.type, "zones": [row.fields() for row in rows], "silent": survey.silent})
        return
    columns = ("ZONE", "OFFERED", "DOCUMENTED", "SOURCE", "QUOTA", "SPOT QUOTA", "PRICE/HOUR", "SPOT/HOUR")
    output.table(columns, [row.cells() for row in rows])
    if quotas.reason:
        output.note(f"The quota is unknown: {quotas.reason}")
    _note_prices([price for row in rows for price in row.prices])


def _note_prices(prices: list[Price]) -> None:
    """Say where the prices are from, and why some are unknown, each once."""
    notes = [
        f"Prices: {price.origin}." if price.is_known else
        f"A price is unknown: {price.reason}."
        for price in prices
    ]  # fmt: skip
    for note in list(dict.fromkeys(notes))[:4]:
        output.note(note)


class _Row:
    """One zone with an accelerator type; on demand first, then spot."""

    def __init__(self, session: Session, offer: ZoneOffer, kind: Accelerator, quotas: QuotaList) -> None:
        self._offer = offer
        self._name = kind.type
        terms = (False, True)
        self.prices: list[Price] = [session.prices.price(kind, offer.zone, spot=spot) for spot in terms]
        self.quotas: list[Quota] = [quotas.quota(kind, offer.zone, spot=spot) for spot in terms]

    @property
    def order(self) -> tuple[bool, bool]:
        """Return what sorts documented zones first, and those without any quota or any price last."""
        has_quota = any(quota.limit != 0 for quota in self.quotas)
        is_flawed = not has_quota or not any(price.is_known for price in self.prices)
        return is_flawed, not self._offer.is_documented(self._name)

    def cells(self) -> tuple[object, ...]:
        """Return the line of the table."""
        offered, sources = OFFERED[self._offer.offers(self._name)], self._offer.sources(self._name)
        documented = OFFERED[self._offer.is_documented(self._name)]
        prices = (price.short for price in self.prices)
        return self._offer.zone, offered, documented, sources, *self.quotas, *prices

    def fields(self) -> dict[str, object]:
        """Return it as JSON."""
        quota, spot_quota = map(quota_fields, self.quotas)
        price, spot_price = map(price_fields, self.prices)
        return {
            "zone": self._offer.zone,
            "offered": self._offer.offers(self._name),
            "documented": self._offer.is_documented(self._name),
            "sources": self._offer.sources(self._name).split(", "),
            "quota": quota,
            "spot_quota": spot_quota,
            "price_per_hour": price,
            "spot_price_per_hour": spot_price,
        }
