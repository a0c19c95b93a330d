"""The commands sim start, stop and reset."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl import faults
from tpuctl.cli import output
from tpuctl.cli.session import confirm, yes_option
from tpuctl.cli.simulator.faults import show_faults
from tpuctl.cli.simulator.status import show_endpoints
from tpuctl.cli.value_types import LOCAL_PATH
from tpuctl.cloud import simulator
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator.control import ControlClient
from tpuctl.errors import StateError, UsageError


@click.command()
@click.option(
    "--scenario",
    type=LOCAL_PATH,
    metavar="FILE",
    help="Add the faults in this TOML file; they replace those of an earlier scenario.",
)
@click.option(
    "--egress",
    type=click.Choice(["pass", "refuse"]),
    help="Pass traffic from hosts to addresses that are not simulated, such as a package index (default), or "
    "refuse it as a firewall does; until the simulator stops.",
)
@click.option(
    "--no-external-ips",
    is_flag=True,
    help="Give no TPU VM an external address, whatever is asked for: hosts are reached through "
    "Identity-Aware Proxy alone; until the simulator stops.",
)
@click.option(
    "--iam",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Enforce roles: Google's default ones, and those in FILE, the output of 'terraform show -json'.",
)
@click.option(
    "--iam-user",
    metavar="MEMBER",
    help="With --iam, run programs outside the hosts as this account, such as user:ada@example.com "
    "(default: an owner of the project).",
)
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def start(
    scenario: Path | None,
    egress: str | None,
    no_external_ips: bool,
    iam: str | None,
    iam_user: str | None,
    as_json: bool,
) -> None:
    """Start the simulator, if it does not run; other commands start it by themselves.

    \b
    Example:
      tpuctl sim start --scenario rehearsal.toml
      tpuctl sim start --no-external-ips
      tpuctl sim start --iam iam.json --iam-user user:ada@example.com
      tpuctl sim start
    """
    if iam_user is not None and iam is None:
        raise UsageError("--iam-user is for roles that are enforced.", hint="Add --iam.")
    rehearsed = faults.load_scenario(scenario) if scenario else None  # its mistakes, before anything starts
    options = {"--egress": egress, "--iam": _absolute(iam), "--iam-user": iam_user}
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    given += ["--no-external-ips"] if no_external_ips else []
    endpoints = simulator.ensure(simulator_folder(), *given)
    _check_egress(egress, endpoints.egress)
    if no_external_ips and endpoints.external_ips:
        raise _runs_already("and gives external addresses")
    _check_iam(iam, iam_user, endpoints.iam)
    if rehearsed:
        added = ControlClient(simulator_folder()).add(rehearsed.faults, rehearsed.name)
        show_faults(added, err=True)
    show_endpoints(endpoints, as_json=as_json)


@click.command()
def stop() -> None:
    """Stop the simulator and every process on its hosts; its nodes and buckets stay on disk.

    \b
    Example:
      tpuctl sim stop
    """
    folder = simulator_folder()
    if simulator.stop(folder):
        output.note("The simulator has stopped.")
        return
    output.note("The simulator was not running.")
    ended = simulator.end_orphans(folder)
    if ended:
        programs = f"{ended} program{'s' if ended > 1 else ''}"
        output.note(f"It had been killed: {programs} still running on its hosts ended.")


@click.command()
@yes_option
def reset(yes: bool) -> None:
    """Stop the simulator and delete its state: nodes, the files of their hosts, buckets, faults, events.

    \b
    Example:
      tpuctl sim reset
    """
    folder = simulator_folder()
    if not folder.exists():
        output.note("The simulator has no state.")
        return
    output.facts({"delete": f"everything in {folder}"}, err=True)
    confirm("Delete it?", yes=yes)
    simulator.reset(folder)
    output.note("The simulator has stopped, and its state is deleted.")


def _check_egress(requested: str | None, actual: str) -> None:
    if requested not in (None, actual):
        raise _runs_already(f"with --egress {actual}")


def _absolute(file: str | None) -> str | None:
    """The simulator has another working folder."""
    return str(Path(file).resolve()) if file else file


def _check_iam(file: str | None, user: str | None, enforced_for: str) -> None:
    """Refuse to pass over --iam when a simulator without it, or for another user, runs already."""
    if file is not None and (not enforced_for or user not in (None, enforced_for)):
        raise _runs_already(f"as {enforced_for}" if enforced_for else "without --iam")


def _runs_already(how: str) -> StateError:
    return StateError(
        f"The simulator runs already, {how}.",
        hint="'tpuctl sim stop' ends it, and every program on its hosts.",
    )
