"""The command up."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click
from msgspec.structs import replace

from tpuctl.cli import output
from tpuctl.cli.nodes.creation_options import (
    creation_options,
    lifetime_options,
    lifetime_text,
    note_far_zones,
    note_order,
    wait_option,
    with_up_options,
    zone_facts,
)
from tpuctl.cli.nodes.table import allocation_table, show_inventory
from tpuctl.cli.printing import prompt
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import (
    Session,
    confirm,
    cross_region_option,
    dry_run_option,
    reaching_options,
    with_zones,
    yes_option,
)
from tpuctl.client.nodes import creation
from tpuctl.errors import saying_bill
from tpuctl.flows.hosts import bucket_access, way_in
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.flows.nodes.options import UpOptions, obstacle_to_spanning
from tpuctl.flows.nodes.plan import NoFrameworkError, UpPlan
from tpuctl.flows.project.rights import DEFAULT_ACCOUNT
from tpuctl.images import FRAMEWORKS, NAMES, image

NO_FACTS: Mapping[str, str] = {}


@click.command()
@creation_options
@click.option("--race", is_flag=True, help="Wait in the queues of all zones, and keep the first TPU.")
@wait_option
@click.option("--detach", is_flag=True, help="Do not wait: 'tpuctl wait' does so later.")
@lifetime_options
@yes_option
@dry_run_option
@with_zones
@reaching_options
@cross_region_option
@with_up_options
def up(
    session: Session, options: UpOptions, zones: tuple[str, ...], race: bool, wait_capacity: int,
    detach: bool, lifetime: Lifetime, yes: bool, dry_run: bool,
) -> Allocation | None:  # fmt: skip
    """Create a TPU, or use the existing one of that name, and wait for SSH on every host.

    \b
    Example:
      tpuctl up v3-8 --spot
    """
    search = creation.search_of(session, options, zones, race=race, wait=wait_capacity, detach=detach)
    try:
        plan = creation.plan(session, options, lifetime, search)
    except NoFrameworkError as error:
        if yes or not sys.stdin.isatty():
            raise
        output.note(error.message)
        options = replace(options, framework=_framework())
        plan = creation.plan(session, options, lifetime, search)
    if dry_run:
        output.requests(creation.requests(session, plan), as_json=session.as_json)
        note_order(plan)
        return None
    ask(session, plan, yes=yes)
    with show_steps() as report:
        allocation = creation.create(session, plan, report)
    with saying_bill(allocation.name, allocation.zone, f"Delete it: {allocation.deletion}"):
        session.listed.add("nodes", allocation.name)
        show_inventory(session, Inventory((allocation,)))
    if detach:
        output.hint(f"tpuctl wait {allocation.name}")
    else:
        output.hint("tpuctl submit SCRIPT", "tpuctl data upload NAME FOLDER")
    return allocation


def _framework() -> str:
    """Return the framework that the user names on the terminal."""
    choice = click.Choice(FRAMEWORKS)
    return prompt(
        f"Which one? ({', '.join(FRAMEWORKS)})", None, lambda text: str(choice.convert(text, None, None))
    )


def ask(
    session: Session, plan: UpPlan, *, yes: bool, more: Mapping[str, str] = NO_FACTS, question: str = ""
) -> None:
    """Show what will bill and what is deleted, and ask; of a TPU that exists and runs, nothing.

    `more` is shown with what is created, and `question` asked for it.
    """
    name = plan.options.name
    if plan.ended:
        allocation_table(plan.ended, session.time, err=True)
        zones = ", ".join(item.zone for item in plan.ended)
        where = f" in {zones}" if plan.existing else ""
        output.note(f"'{name}'{where} has ended: it is deleted first.")
    if plan.existing is None:
        show_plan(session, plan, more)
        note_far_zones(session, plan)
        kind, framework = plan.options.type, plan.options.framework
        if obstacle := plan.options.slices > 1 and obstacle_to_spanning(kind, framework):
            of = f" of {framework}" if framework else ""
            output.note(f"Warning: no program{of} can span these slices: {obstacle}.")
        if not plan.request.service_account:
            output.note(f"{DEFAULT_ACCOUNT}.")
        deletes = bool(plan.options.lifetime.ttl or plan.options.lifetime.idle)
        account = plan.request.service_account
        if warning := bucket_access.warning(session.cloud, account, deletes=deletes):
            output.note(warning)
        _require_way_in(session, plan)
        if warning := way_in.warning(session.cloud.provider, plan.request.metadata):
            output.note(warning)
        confirm(question or f"Create {name}?", yes=yes)
    elif plan.not_applied:
        output.note(f"'{name}' exists: {', '.join(plan.not_applied)} changes nothing on it.")
    if plan.stopped:
        confirm(f"Start {name}? It bills again.", yes=yes)


def _require_way_in(session: Session, plan: UpPlan) -> None:
    """Raise ConfigError where nobody could log in on what is created; inside of the network nobody knows."""
    iap = session.config.get("iap")
    if plan.request.external_ips and iap != "yes":
        if warning := way_in.outside_warning(session.cloud, plan.request):
            output.note(warning)
        return
    if plan.request.external_ips or iap == "no":
        return
    if unchecked := way_in.require_way_in(session.cloud, plan.request.network, plan.request.id.zone):
        output.note(unchecked)


def show_plan(session: Session, plan: UpPlan, more: Mapping[str, str] = NO_FACTS) -> None:
    """Show on stderr what is created, and what it costs."""
    request = plan.request
    size = f"{plan.hosts} host{'s' if plan.hosts > 1 else ''}, {plan.chips} chips"
    size = size if plan.options.type.is_known else "hosts and chips unknown"
    content = {
        "create": plan.options.name,
        "type": f"{_slices(plan)}{request.accelerator} ({size})",
        **zone_facts(plan),
        "runtime": request.runtime,
        **_served(plan),
        "spot": "yes" if request.spot else "no",
        **_queue_facts(plan),
        "price per hour": creation.price_text(session, plan),
        "time to live": lifetime_text(plan.options.lifetime),
    }
    output.facts({**content, **more}, err=True)
    if not plan.options.type.is_known:
        output.note(
            f"Warning: this version of tpuctl does not know {request.accelerator}, which the API lists in "
            f"{request.id.zone}: its hosts, its chips and its price are unknown."
        )


def _served(plan: UpPlan) -> Mapping[str, str]:
    """Return the row that says which frameworks the image serves; none for an unknown image."""
    found = image(plan.request.runtime)
    if found is None:
        return {}
    own = f"{NAMES[found.framework]} {found.framework_version}" if found.framework else ""
    others = [NAMES[name] for name in found.serves(plan.hosts) if name != found.framework]
    installed = f"{', '.join(others)} (installed by runs that require it)" if others else ""
    generation = plan.options.type.generation
    other = (
        ""
        if generation in found.generations
        else f"no {generation}: it is for {', '.join(found.generations)}"
    )
    return {"serves": "; ".join(filter(None, (own, installed, other)))}


def _slices(plan: UpPlan) -> str:
    return f"{plan.options.slices} x " if plan.options.slices > 1 else ""


def _queue_facts(plan: UpPlan) -> dict[str, str]:
    """Return what a request in the queue or for reserved capacity says besides."""
    options, facts = plan.options, dict[str, str]()
    if options.reserved or options.reservation:
        facts["reservation"] = options.reservation or "any that fits"
    if options.is_queued:
        facts["queue"] = f"until {options.valid_until}" if options.valid_until else "until there is capacity"
    return facts
