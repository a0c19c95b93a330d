"""Turns the zones that `up` is given into a search for capacity, and shows its order."""

from __future__ import annotations

from collections.abc import Mapping

import click

from tpuctl import durations
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.regions import BucketLocation
from tpuctl.cli import output
from tpuctl.cli.session import Session
from tpuctl.cli.value_types import DURATION
from tpuctl.config.formats import normalize
from tpuctl.errors import ConfigError, TpuctlError
from tpuctl.flows.nodes.placement.search import Search, expand, is_zone
from tpuctl.flows.nodes.plan import UpPlan

wait_option = click.option(
    "--wait-capacity",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Keep trying for so long while there is no capacity, such as 6h.",
)


def search_of(
    session: Session, accelerator: Accelerator, named: tuple[str, ...], *, race: bool, wait: int, detach: bool
) -> Search:
    """Return the search in the zones that were named, else in the configured one; raises ConfigError."""
    names = tuple(normalize("zone", name, "--zone") if is_zone(name) else name for name in named)
    zones = (
        expand(names, accelerator, _bucket_location(session))
        if names
        else (_configured(session, accelerator),)
    )
    return Search(zones, names, race=race, wait=wait, detach=detach)


def zone_facts(plan: UpPlan) -> Mapping[str, str]:
    """Return the zones of a plan in their order, and how long they are tried, for people to read."""
    zones = [creation.request.id.zone for creation in plan.creations]
    if len(zones) == 1:
        facts = {"zone": zones[0]}
    elif plan.search.race:
        facts = {"zone": f"the first with capacity of {', '.join(zones)}: all queues at once"}
    else:
        facts = {"zone": f"{', else '.join(zones)}"}
    if plan.search.wait:
        facts["wait"] = f"up to {durations.text(plan.search.wait)} for capacity"
    return facts


def note_order(plan: UpPlan) -> None:
    """Say of a dry run which of several creates are sent."""
    if plan.existing is None and len(plan.creations) > 1 and not plan.search.race:
        output.note("Each create is sent only if there is no capacity in the zones before it.")


def _configured(session: Session, accelerator: Accelerator) -> str:
    zone = session.config.get("zone")
    if zone is None:
        raise ConfigError(
            "No zone is configured.",
            hint=f"{accelerator.type} has been seen in {', '.join(accelerator.zones)}: pass --zone, "
            "or --zone any, or run 'tpuctl init'.",
        )
    return zone


def price_text(session: Session, plan: UpPlan) -> str:
    """Return what the TPU costs per hour in the first zone, and from how much to how much in the others."""
    first, *others = (session.prices.of_creation(creation) for creation in plan.creations)
    amounts = sorted((price.amount, price.short) for price in others if price.amount is not None)
    if all(price.amount == first.amount for price in others) or not amounts:
        return str(first)
    low, high = amounts[0][1], amounts[-1][1]
    return f"{first}; elsewhere {low if low == high else f'{low} to {high}'}"


def note_far_zones(session: Session, plan: UpPlan) -> None:
    """Warn, in one sentence, of the bill for traffic between the bucket and regions that may be used."""
    location, bucket = _bucket_location(session), session.config.get("bucket")
    if location is None and bucket:
        output.note(f"Warning: where gs://{bucket} is cannot be read: traffic from another region is billed.")
    zones = [creation.request.id.zone for creation in plan.creations]
    if location and (warning := location.warning(*zones)):
        output.note(f"Warning: {warning}")


def _bucket_location(session: Session) -> BucketLocation | None:
    """Return where the bucket is; None without one, or if it does not say."""
    if session.config.get("bucket") is None:
        return None
    try:
        return session.cloud.bucket.location()
    except TpuctlError:
        return None
