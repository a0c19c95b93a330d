"""The commands zones, types, runtimes and price.

- Shows what the commands of this folder share: silent zones, what is offered where, quotas.
- The command types.
- The command runtimes.
- The command zones.
- The command price.
- The command cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import click

from tpuctl import accelerators, durations
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.prices import Price
from tpuctl.catalogue.quotas import Quota, QuotaList
from tpuctl.catalogue.totals import Total
from tpuctl.cli import output
from tpuctl.cli.nodes.table import show_restarts
from tpuctl.cli.printing import price_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import ACCELERATOR, DURATION, OFFERED_ACCELERATOR
from tpuctl.client.runs import steps
from tpuctl.flows.costs.bills import BillReport, By, Entry, Group, grouped
from tpuctl.flows.costs.report import CostReport
from tpuctl.flows.offers import Survey, ZoneOffer, default_of, read_quotas, survey_runtimes, survey_types

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


TYPE_COLUMNS = ("TYPE", "GENERATION", "CHIPS", "CORES", "HOSTS", "TOPOLOGY", "SOURCE", "ZONES")
FACTS = ("generation", "chips", "cores", "hosts", "topology")


@click.command()
@with_session
def types(session: Session) -> None:
    """List the accelerator types: chips, hosts, topology, and the zones that offer them.

    In every zone, or in that of --zone.

    \b
    Example:
      tpuctl types --zone europe-west4-a
    """
    survey = survey_types(session.cloud.provider, session.from_flag("zone"))
    if session.as_json:
        rows = [_type_fields(survey, name) for name in survey.names]
        output.json({"types": rows, "silent": survey.silent})
    else:
        output.table(TYPE_COLUMNS, [_type_cells(survey, name) for name in survey.names])
    note_silent(survey)


def _type_fields(survey: Survey, name: str) -> dict[str, object]:
    return {"type": name, **_facts(name), **offer_fields(survey, name)}


def _facts(name: str) -> dict[str, object]:
    """What the catalogue knows of a type; None for each fact of one that it does not know."""
    kind = accelerators.catalogue().get(name)
    return {fact: getattr(kind, fact, None) for fact in FACTS}


def _type_cells(survey: Survey, name: str) -> tuple[object, ...]:
    facts = [UNKNOWN if fact is None else fact for fact in _facts(name).values()]
    return name, *facts, *offer_cells(offer_fields(survey, name))


RUNTIME_COLUMNS = ("RUNTIME", "DEFAULT OF", "SOURCE", "ZONES")


@click.command()
@with_session
def runtimes(session: Session) -> None:
    """List the runtime versions (system images) for 'tpuctl up --runtime', and the zones that have them.

    In every zone, or in that of --zone. DEFAULT OF names the generations that get it for JAX and PyTorch.

    \b
    Example:
      tpuctl runtimes --zone europe-west4-a
    """
    survey = survey_runtimes(session.cloud.provider, session.from_flag("zone"))
    if session.as_json:
        rows = [_runtime_fields(survey, name) for name in survey.names]
        output.json({"runtimes": rows, "silent": survey.silent})
    else:
        output.table(RUNTIME_COLUMNS, [_runtime_cells(survey, name) for name in survey.names])
    note_silent(survey)


def _runtime_fields(survey: Survey, name: str) -> dict[str, object]:
    return {"runtime": name, "default_of": default_of(name), **offer_fields(survey, name)}


def _runtime_cells(survey: Survey, name: str) -> tuple[object, ...]:
    offer = offer_fields(survey, name)
    sources, zones = offer_cells(offer)
    is_everywhere = len(offer["zones"]) == len(survey.zones) > 1
    return name, ", ".join(default_of(name)) or UNKNOWN, sources, "all" if is_everywhere else zones


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
        f"Prices: {price.origin}." if price.is_known else f"A price is unknown: {price.reason}."
        for price in prices
    ]
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


PRICE_COLUMNS = ("REGION", "ON DEMAND/HOUR", "SPOT/HOUR", "SOURCE")


@click.command()
@click.argument("accelerator", type=ACCELERATOR)
@click.option("--spot", is_flag=True, help="Show the price of spot alone.")
@click.option(
    "--slices",
    type=click.IntRange(min=1, max=1000),
    default=1,
    show_default=True,
    help="Show the price of so many slices.",
)
@with_session
def price(session: Session, accelerator: str, spot: bool, slices: int) -> None:
    """Show what an accelerator type costs per hour: on demand and spot, in every region or that of --zone.

    Prices are Google's list prices (Cloud Billing Catalog), read once a day; the table [prices] of
    tpuctl.toml comes first. Disks, traffic, discounts and contracts are not in them.

    \b
    Example:
      tpuctl price v3-8 --zone europe-west4-a --spot
    """
    kind = accelerators.accelerator(accelerator)
    named = session.from_flag("zone")
    zones = [named] if named else _zone_of_each_region(kind)
    terms = (True,) if spot else (False, True)
    by_zone = {
        zone: [session.prices.price(kind, zone, spot=term, slices=slices) for term in terms] for zone in zones
    }
    if session.as_json:
        _print_prices(kind, slices, by_zone, spot=spot)
        return
    columns = [column for column in PRICE_COLUMNS if not (spot and column.startswith("ON"))]
    output.table(columns, [_price_row(zone, prices) for zone, prices in by_zone.items()])
    _note_unknown([price for prices in by_zone.values() for price in prices])


def _zone_of_each_region(kind: Accelerator) -> list[str]:
    """A price is that of a region: one zone of each stands for it."""
    return list({accelerators.region(zone): zone for zone in reversed(kind.zones)}.values())[::-1]


def _price_row(zone: str, prices: list[Price]) -> tuple[object, ...]:
    sources = dict.fromkeys(price.origin for price in prices if price.is_known)
    return accelerators.region(zone), *(price.short for price in prices), "; ".join(sources) or "-"


def _note_unknown(prices: list[Price]) -> None:
    """Say why prices are unknown, and what would make them known, each once."""
    for reason in dict.fromkeys(price.reason for price in prices if not price.is_known):
        output.note(f"Unknown: {reason}.")
    for hint in dict.fromkeys(price.hint for price in prices if price.hint):
        output.note(f"Hint: {hint}")


def _print_prices(kind: Accelerator, slices: int, by_zone: dict[str, list[Price]], *, spot: bool) -> None:
    terms = ("spot",) if spot else ("on_demand", "spot")
    rows = [
        {
            "region": accelerators.region(zone),
            **{term: price_fields(price) for term, price in zip(terms, prices, strict=True)},
        }
        for zone, prices in by_zone.items()
    ]
    output.json({"type": kind.type, "slices": slices, "per": "hour", "prices": rows})


@click.command()
@click.option(
    "--since",
    type=DURATION,
    default="30d",
    show_default=True,
    metavar="DURATION",
    help="Time that is looked at, such as 12h or 7d.",
)
@click.option(
    "--by",
    type=click.Choice(get_args(By)),
    default="run",
    show_default=True,
    help="What to add up by.",
)
@click.option(
    "--now",
    "is_now",
    is_flag=True,
    help="List what bills now in the whole project instead, also what tpuctl did not make.",
)
@with_session
def cost(session: Session, since: int, by: By, is_now: bool) -> None:
    """Estimate what runs have cost, and the time in which no run used a TPU.

    An estimate, by the time on each TPU and the list price then: no bill. Disks, traffic, discounts and
    contracts are not in it; neither is what waits in a queue, nor a TPU that is stopped.

    \b
    Example:
      tpuctl cost --since 7d --by user
      tpuctl cost --now
    """
    if is_now:
        _show_bills(session, steps.bills(session))
        show_restarts(session)
        return
    report = steps.costs(session, since)
    groups = grouped(report.entries, by)
    if session.as_json:
        _print_cost(report, groups, by)
        return
    _show(report, groups, by)


def _show(report: CostReport, groups: list[Group], by: By) -> None:
    rows = [
        (group.key, group.attempts or "", durations.text(group.seconds), group.total.short, _prices(group))
        for group in groups
    ]
    output.table((by.upper(), "ATTEMPTS", "TIME", "COST", "PRICE FROM"), rows)
    for gap in report.gaps:
        output.note(f"Warning: {gap}")
    for reason in report.total.reasons:
        output.note(f"Unknown: {reason}.")
    if not rows:
        output.note(f"Nothing was used since {report.since}.")
        output.hint("tpuctl runs")
        return
    words = f"Estimate since {report.since}, no bill: {report.total.short}"
    output.note(f"{words} (a run with two labels counts once)." if by == "label" else f"{words}.")
    idle = next((entry for entry in report.entries if entry.goes_on and not entry.run), None)
    last = max((entry for entry in report.entries if entry.run), key=lambda entry: entry.ended, default=None)
    shown = idle.node if idle else last.run if last else ""
    output.hint(f"tpuctl describe {shown}" if shown else "tpuctl runs")


def _show_bills(session: Session, report: BillReport) -> None:
    total = report.total
    if session.as_json:
        output.json({
            "bills": [
                {
                    "kind": bill.kind, "name": bill.name, "place": bill.place, "what": bill.what,
                    "owner": bill.owner, "price_per_hour": price_fields(bill.price) if bill.price else None,
                }
                for bill in report.bills
            ],
            "total_per_hour": _total(total),
            "missing": report.gaps,
        })  # fmt: skip
        return
    rows = [
        (bill.kind, bill.name, bill.place, bill.what, bill.price.short if bill.price else "-", bill.owner)
        for bill in report.bills
    ]
    output.table(("KIND", "NAME", "PLACE", "WHAT", "PER HOUR", "OWNER"), rows)
    for gap in report.gaps:
        output.note(f"Warning: {gap}")
    for reason in total.reasons:
        output.note(f"Unknown: {reason}.")
    output.note(
        f"TPUs cost {total.short} per hour; disks, addresses and storage bill besides."
        if rows
        else "Nothing that bills was seen."
    )
    if any(bill.kind in ("TPU", "queued resource") for bill in report.bills):
        output.hint("tpuctl down NAME")


def _prices(group: Group) -> str:
    """Return where the prices of a group are from, and which of them are today's."""
    origins = dict.fromkeys(
        f"{entry.price.origin}{', present price' * entry.is_present}"
        for entry in group.entries
        if entry.price.is_known
    )
    return "; ".join(origins) or "-"


def _print_cost(report: CostReport, groups: list[Group], by: By) -> None:
    output.json(
        {
            "since": report.since,
            "until": report.until,
            "by": by,
            "is_estimate": True,
            "total": _total(report.total),
            "groups": [
                {
                    by: group.key,
                    "attempts": group.attempts,
                    "seconds": round(group.seconds),
                    "cost": _total(group.total),
                }
                for group in groups
            ],
            "entries": [_cost_fields(entry) for entry in report.entries],
            "missing": list(report.gaps),
        }
    )


def _total(total: Total) -> dict[str, object]:
    """Return a sum: an amount in each currency, and why some costs are unknown."""
    amounts = {currency: f"{amount:.2f}" for currency, amount in total.amounts}
    return {"amounts": amounts, "unknown": list(total.reasons)}


def _cost_fields(entry: Entry) -> dict[str, object]:
    return {
        "run": entry.run or None, "attempt": entry.attempt or None, "node": entry.node or None,
        "zone": entry.zone or None, "uid": entry.uid or None, "user": entry.user,
        "labels": dict(entry.labels),
        "began": entry.began or None, "ended": None if entry.goes_on else entry.ended,
        "seconds": None if entry.seconds is None else round(entry.seconds),
        "price_per_hour": price_fields(entry.price), "is_present_price": entry.is_present,
        "cost": price_fields(entry.cost.rounded()),
    }  # fmt: skip
