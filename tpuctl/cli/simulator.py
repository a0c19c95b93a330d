"""sim start, sim stop, sim status."""

from __future__ import annotations

import click

from tpuctl.cli import show
from tpuctl.cloud import embedded
from tpuctl.cloud.endpoints import simulator_folder


@click.group()
def sim() -> None:
    """The simulator: Cloud TPU API, Cloud Storage and TPU hosts on this machine."""


@sim.command()
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
def start(as_json: bool) -> None:
    """Start the simulator, if it does not run; other commands do so by themselves.

    \b
    Example:
      tpuctl sim start
    """
    _show(embedded.ensure(simulator_folder()), as_json=as_json)


@sim.command()
def stop() -> None:
    """Stop the simulator and every process on its hosts; its nodes and buckets stay on disk.

    \b
    Example:
      tpuctl sim stop
    """
    stopped = embedded.stop(simulator_folder())
    show.note("The simulator has stopped." if stopped else "The simulator was not running.")


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
        show.json({"running": False})
    else:
        show.note("The simulator is not running.")
        show.hint("tpuctl sim start")


def _show(served: embedded.Served, *, as_json: bool) -> None:
    content = {
        "running": True,
        "pid": served.pid,
        "project": served.project,
        "bucket": served.bucket,
        "Cloud TPU API (gRPC)": served.tpu_grpc,
        "Cloud TPU API (REST)": served.tpu_rest,
        "Cloud Storage": served.storage,
        "folder": str(simulator_folder()),
    }
    if as_json:
        names = {
            "Cloud TPU API (gRPC)": "tpu_grpc",
            "Cloud TPU API (REST)": "tpu_rest",
            "Cloud Storage": "storage",
        }
        show.json({names.get(name, name): value for name, value in content.items()})
    else:
        show.facts(content)
