"""sim start, stop, status, reset and logs."""

from __future__ import annotations

from pathlib import Path

import click

from tpuctl.cli import output
from tpuctl.cli.session import confirm, yes_option
from tpuctl.cli.simulator import faults
from tpuctl.cli.simulator.env import env
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator import process as embedded
from tpuctl.cloud.simulator.log import SimulatorLog
from tpuctl.errors import StateError
from tpuctl.faults import load_scenario


@click.group()
def sim() -> None:
    """The simulator: Cloud TPU API, Cloud Storage and TPU hosts on this machine."""


@sim.command()
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Ask for the faults in this TOML file, in place of those of an earlier scenario.",
)
@click.option(
    "--egress",
    type=click.Choice(["pass", "refuse"]),
    help="Pass traffic from hosts to places that are not simulated, such as a package index (as without this "
    "option), or refuse it as behind a firewall; until the simulator stops.",
)
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def start(scenario: Path | None, egress: str | None, as_json: bool) -> None:
    """Start the simulator, if it does not run; other commands do so by themselves.

    \b
    Example:
      tpuctl sim start --scenario rehearsal.toml
      tpuctl sim start
    """
    asked = load_scenario(scenario) if scenario else None
    served = embedded.ensure(simulator_folder(), *(["--egress", egress] if egress else []))
    if egress not in (None, served.egress):
        raise StateError(
            f"The simulator runs already, with --egress {served.egress}.",
            hint="'tpuctl sim stop' ends it, and every program on its hosts.",
        )
    if asked:
        faults.load_scenario(asked)
    _show(served, as_json=as_json)


sim.add_command(env)
sim.add_command(faults.fault)
sim.add_command(faults.events)


@sim.command()
def stop() -> None:
    """Stop the simulator and every process on its hosts; its nodes and buckets stay on disk.

    \b
    Example:
      tpuctl sim stop
    """
    folder = simulator_folder()
    if embedded.stop(folder):
        output.note("The simulator has stopped.")
        return
    output.note("The simulator was not running.")
    _end_leftovers(folder)


@sim.command()
@yes_option
def reset(yes: bool) -> None:
    """Stop the simulator and delete all it keeps: nodes, the files of their hosts, buckets, faults, events.

    \b
    Example:
      tpuctl sim reset
    """
    folder = simulator_folder()
    if not folder.exists():
        output.note("The simulator keeps nothing.")
        return
    output.facts({"delete": f"everything in {folder}"}, err=True)
    confirm("Delete it?", yes=yes)
    embedded.reset(folder)
    output.note("The simulator has stopped, and keeps nothing any more.")


@sim.command()
@click.option("--follow", "-f", is_flag=True, help="Go on showing what comes, until the simulator stops.")
@click.option("--last", type=click.IntRange(0), metavar="N", help="Begin with the last N lines.")
def logs(follow: bool, last: int | None) -> None:
    """Show what went wrong in the simulator itself; what happened in it shows 'tpuctl sim events'.

    \b
    Example:
      tpuctl sim logs --follow
    """
    folder = simulator_folder()
    log = SimulatorLog(folder)
    before = log.new()
    if not before:
        output.note(f"{log.path} has no lines: nothing went wrong.")
    for line in before if last is None else before[len(before) - min(last, len(before)) :]:
        click.echo(line)
    if follow:
        for line in log.follow(lambda: embedded.running(folder) is not None):
            click.echo(line)


@sim.command()
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def status(as_json: bool) -> None:
    """Show whether the simulator runs, and where its services are.

    \b
    Example:
      tpuctl sim status
    """
    found = embedded.running(simulator_folder())
    if found:
        _show(found, as_json=as_json)
    elif as_json:
        output.json({"running": False})
    else:
        output.note("The simulator is not running.")
        output.hint("tpuctl sim start")


def _end_leftovers(folder: Path) -> None:
    ended = embedded.end_leftovers(folder)
    if ended:
        output.note(f"It had been killed; {ended} program{'s' if ended > 1 else ''} left on its hosts ended.")


def _show(served: embedded.Served, *, as_json: bool) -> None:
    content = {
        "running": True,
        "pid": served.pid,
        "project": served.project,
        "bucket": served.bucket,
        "Cloud TPU API (gRPC)": served.tpu_grpc,
        "Cloud TPU API (REST)": served.tpu_rest,
        "Cloud Storage": served.storage,
        "egress": served.egress,
        "folder": str(simulator_folder()),
    }
    if as_json:
        names = {
            "Cloud TPU API (gRPC)": "tpu_grpc",
            "Cloud TPU API (REST)": "tpu_rest",
            "Cloud Storage": "storage",
        }
        output.json({names.get(name, name): value for name, value in content.items()})
    else:
        output.facts(content)
