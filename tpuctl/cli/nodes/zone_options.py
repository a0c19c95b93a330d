"""Shows in which zones `up` looks for capacity, what that costs, and what else it means."""

from __future__ import annotations

from collections.abc import Mapping

import click

from tpuctl import durations
from tpuctl.catalogue.regions import unread
from tpuctl.cli import output
from tpuctl.cli.session import Session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.nodes import creation
from tpuctl.flows.nodes.plan import UpPlan

wait_option = click.option(
    "--wait-capacity",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Keep trying for so long while there is no capacity, such as 6h.",
)


def zone_facts(plan: UpPlan) -> Mapping[str, str]:
    """Return the zones of a plan in their order, and how long they are tried, for people to read."""
    flaws = plan.search.flaws
    zones = [
        f"{zone} ({flaws[zone]})" if zone in flaws else zone
        for zone in (each.request.id.zone for each in plan.creations)
    ]
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


def note_far_zones(session: Session, plan: UpPlan) -> None:
    """Warn, in one sentence, of the bill for traffic between the bucket and regions that may be used."""
    location, bucket = creation.bucket_location(session.context), session.config.get("bucket")
    if location is None and bucket:
        output.note(unread(bucket))
    if location and plan.search.left_out:
        output.note(
            f"Not tried, since gs://{bucket} is in another region: {len(plan.search.left_out)} zones "
            f"({', '.join(plan.search.left_out[:3])} ...). --cross-region tries them, too."
        )
    zones = [each.request.id.zone for each in plan.creations]
    if location and (warning := location.warning(*zones)):
        output.note(f"Warning: {warning}")
