"""up, ls, down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tpuctl import accelerators, clock
from tpuctl.cli import output
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.errors import ConfigError
from tpuctl.flows.nodes import lookup as flow
from tpuctl.flows.nodes import up as up_flow
from tpuctl.job_header import FRAMEWORKS
from tpuctl.nodes import Node


@click.command()
@click.argument("accelerator")
@click.option("--name", help="Name of the node; by default USER-ACCELERATOR.")
@click.option("--runtime", help="Runtime version; by default the newest for the framework.")
@click.option(
    "--framework", type=click.Choice(FRAMEWORKS), default="tensorflow", show_default=True,
    help="Decides on the runtime version.",
)  # fmt: skip
@click.option("--spot", is_flag=True, help="Cheaper; Google may take it back at any time.")
@yes_option
@dry_run_option
@with_session
def up(
    session: Session, accelerator: str, name: str | None, runtime: str | None, framework: str,
    spot: bool, yes: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Create (or find) a TPU, ready for SSH on every host.

    \b
    Example:
      tpuctl up v3-8 --spot
    """
    wanted = _wanted(session, accelerator, name, runtime, framework, spot)
    cloud = session.cloud
    plan = up_flow.plan_up(cloud.tpu, cloud.ssh, wanted)
    if dry_run:
        output.requests(_requests(plan), as_json=session.as_json)
        return
    if plan.found is None:
        _show_plan(plan, cloud.endpoints.price)
        confirm(f"Create {plan.request.name}?", yes=yes)
    with show_steps() as tell:
        node = up_flow.up(cloud.tpu, cloud.ssh, plan, tell)
    _show_nodes(session, [node])
    output.hint("tpuctl submit SCRIPT, or first: tpuctl data upload NAME FOLDER")


@click.command()
@with_session
def ls(session: Session) -> None:
    """List TPUs, in every zone or the one of --zone.

    \b
    Example:
      tpuctl ls --json
    """
    listing = session.cloud.tpu.nodes(session.typed("zone") or "-")
    _show_nodes(session, listing.nodes, listing.unreachable)
    if not listing.nodes:
        output.hint("tpuctl up v3-8")


@click.command()
@click.argument("names", nargs=-1)
@yes_option
@dry_run_option
@with_session
def down(session: Session, names: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete TPUs: those named, or all that tpuctl made for you, in every zone.

    \b
    Example:
      tpuctl down
    """
    tpu = session.cloud.tpu
    doomed = flow.plan_down(tpu, names, session.user)
    if dry_run:
        output.requests(_deletes(doomed), as_json=session.as_json)
        return
    if doomed:
        _table(doomed, session, err=True)
        confirm(f"Delete {len(doomed)} node{'s' if len(doomed) > 1 else ''}?", yes=yes)
        with show_steps() as tell:
            flow.down(tpu, doomed, tell)
    _show_deleted(session, doomed)


def _wanted(
    session: Session, accelerator: str, name: str | None, runtime: str | None, framework: str, spot: bool
) -> up_flow.Wanted:
    kind = accelerators.accelerator(accelerator)
    zone = session.config.get("zone")
    if zone is None:
        raise ConfigError(
            "No zone is configured.",
            hint=f"{kind.type} has been seen in {', '.join(kind.zones)}: pass --zone, or run 'tpuctl init'.",
        )
    return up_flow.Wanted(
        accelerator=kind.type,
        name=name or up_flow.default_name(session.user, kind.type),
        zone=zone,
        runtime=runtime,
        framework=framework,
        spot=spot,
        network=session.config.require("network"),
        service_account=session.config.get("service_account"),
        subnetwork=session.config.get("subnetwork"),
        external_ips=session.config.agreed("external_ips"),
    )


def _requests(plan: up_flow.UpPlan) -> list[Any]:
    from tpuctl.cloud.tpu import create_request  # noqa: PLC0415  the client is slow to import

    return [] if plan.found else [create_request(plan.request)]


def _deletes(nodes: Sequence[Node]) -> list[Any]:
    from tpuctl.cloud.tpu import delete_request  # noqa: PLC0415  the client is slow to import

    return [delete_request(node) for node in nodes]


def _show_plan(plan: up_flow.UpPlan, price: str) -> None:
    request = plan.request
    size = f"{plan.hosts} host{'s' if plan.hosts > 1 else ''}, {plan.chips} chips"
    content = {
        "create": request.name,
        "type": f"{request.accelerator} ({size})",
        "zone": request.zone,
        "runtime": request.runtime,
        "spot": "yes" if request.spot else "no",
        "price per hour": price,
        "time to live": "until 'tpuctl down'",
    }
    output.facts(content, err=True)


def _show_nodes(session: Session, nodes: Sequence[Node], unreachable: Sequence[str] = ()) -> None:
    if session.as_json:
        output.json({"nodes": [_fields(node) for node in nodes], "unreachable": list(unreachable)})
        return
    _table(nodes, session)
    for zone in unreachable:
        output.note(f"Warning: no answer from {zone}: what is there is not listed.")


def _table(nodes: Sequence[Node], session: Session, *, err: bool = False) -> None:
    rows = [
        (
            node.name,
            node.zone,
            node.accelerator,
            len(node.addresses) or "",
            node.state,
            "yes" if node.spot else "no",
            node.runtime,
            clock.age(node.created, session.now),
        )
        for node in nodes
    ]
    output.table(("NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE"), rows, err=err)


def _fields(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "project": node.project,
        "zone": node.zone,
        "accelerator": node.accelerator,
        "state": node.state,
        "health": node.health,
        "spot": node.spot,
        "runtime": node.runtime,
        "created": node.created,
        "addresses": list(node.addresses),
        "labels": dict(node.labels),
    }


def _show_deleted(session: Session, nodes: Sequence[Node]) -> None:
    if session.as_json:
        output.json({"deleted": [node.name for node in nodes]})
    elif not nodes:
        output.note("There is nothing of yours to delete.")
    else:
        output.note(f"Deleted {', '.join(node.name for node in nodes)}.")
