"""The command price."""

from __future__ import annotations

import click

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.prices import Price
from tpuctl.cli import output
from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import ACCELERATOR

PRICE_COLUMNS = ("REGION", "ON DEMAND/HOUR", "SPOT/HOUR", "SOURCE")


@click.command()
@click.argument("accelerator", type=ACCELERATOR)
@click.option("--spot", is_flag=True, help="Show the price of spot alone.")
@click.option(
    "--slices", type=click.IntRange(min=1, max=1000), default=1, show_default=True,
    help="Show the price of so many slices.",
)  # fmt: skip
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
