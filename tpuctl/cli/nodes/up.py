"""The command up."""

from __future__ import annotations

import click

from tpuctl import accelerators
from tpuctl.cli import output
from tpuctl.cli.nodes.table import show_nodes
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, confirm, dry_run_option, with_session, yes_option
from tpuctl.cli.value_types import ACCELERATOR
from tpuctl.errors import ConfigError
from tpuctl.flows.nodes import up as flow
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.plan import UpPlan, default_name, plan_up
from tpuctl.flows.project.rights import DEFAULT_ACCOUNT
from tpuctl.job_header import FRAMEWORKS


@click.command()
@click.argument("accelerator", type=ACCELERATOR)
@click.option("--name", help="Name of the node; by default USER-ACCELERATOR.")
@click.option("--runtime", help="Runtime version; by default the newest for the framework.")
@click.option(
    "--framework", type=click.Choice(FRAMEWORKS), default="tensorflow", show_default=True,
    help="Framework to choose the runtime version for.",
)  # fmt: skip
@click.option(
    "--spot", is_flag=True, help="Create a spot TPU: cheaper, but Google may preempt it at any time."
)
@yes_option
@dry_run_option
@with_session
def up(
    session: Session, accelerator: str, name: str | None, runtime: str | None, framework: str,
    spot: bool, yes: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Create a TPU, or use the existing one of that name, and wait for SSH on every host.

    \b
    Example:
      tpuctl up v3-8 --spot
    """
    options = _options(session, accelerator, name, runtime, framework, spot)
    zone = _zone(session, accelerator)
    provider, ssh = session.cloud.provider, session.cloud.ssh
    plan = plan_up(provider, ssh.login_key(), options, zone)
    if dry_run:
        output.requests(flow.requests(provider, plan), as_json=session.as_json)
        return
    if plan.existing is None:
        _show_plan(plan, str(session.prices.of_creation(plan.creation)))
        if plan.request.service_account is None:
            output.note(f"{DEFAULT_ACCOUNT}.")
        confirm(f"Create {plan.request.id.name}?", yes=yes)
    with show_steps() as report:
        node = flow.up(provider, ssh, plan, report)
    session.listed.add("nodes", node.name)
    show_nodes(session, [node])
    output.hint("tpuctl submit SCRIPT, or first: tpuctl data upload NAME FOLDER")


def _options(
    session: Session, type_name: str, name: str | None, runtime: str | None, framework: str, spot: bool
) -> UpOptions:
    accelerator = accelerators.accelerator(type_name)
    return UpOptions(
        accelerator=accelerator.type,
        name=name or default_name(session.config.require("ssh_user"), accelerator.type),
        runtime=runtime,
        framework=framework,
        spot=spot,
        network=session.config.require("network"),
        service_account=session.config.get("service_account"),
        owner=session.owner,
        subnetwork=session.config.get("subnetwork"),
        external_ips=session.config.require_bool("external_ips"),
    )


def _zone(session: Session, type_name: str) -> str:
    zone = session.config.get("zone")
    if zone is None:
        accelerator = accelerators.accelerator(type_name)
        raise ConfigError(
            "No zone is configured.",
            hint=f"{accelerator.type} has been seen in {', '.join(accelerator.zones)}: "
            "pass --zone, or run 'tpuctl init'.",
        )
    return zone


def _show_plan(plan: UpPlan, price: str) -> None:
    request = plan.request
    size = f"{plan.hosts} host{'s' if plan.hosts > 1 else ''}, {plan.chips} chips"
    content = {
        "create": request.id.name,
        "type": f"{request.accelerator} ({size})",
        "zone": request.id.zone,
        "runtime": request.runtime,
        "spot": "yes" if request.spot else "no",
        "price per hour": price,
        "time to live": "until 'tpuctl down'",
    }
    output.facts(content, err=True)
